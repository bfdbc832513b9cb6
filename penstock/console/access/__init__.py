"""Who may use the console: logins, roles, and the guard before every request."""
