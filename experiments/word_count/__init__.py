"""The same word count in several stream processors."""
