"""The application: the path of one pass on one screen, the command line, the service, the demo."""
