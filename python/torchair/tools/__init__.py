"""Programs over files that compiled programs leave."""
