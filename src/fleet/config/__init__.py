"""Settings: each declared once, in `settings.py`; default < user's file < project's file < environment."""
