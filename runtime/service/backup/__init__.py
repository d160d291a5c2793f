"""Back up a home to a folder or a bucket beside the running service, and restore it elsewhere."""
