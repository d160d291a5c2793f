"""The roof: the one path on one screen, the command line, the service, the demo."""
