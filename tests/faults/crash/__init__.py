"""The crash harness: real processes, killed at random moments under load, and every engine checked afterwards."""
