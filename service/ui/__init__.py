"""The pages: plain HTML that talks to the API, with nothing from elsewhere."""
