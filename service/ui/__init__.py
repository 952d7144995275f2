"""What people look at: pages that talk to the API, with nothing from elsewhere, and the terminal's table."""
