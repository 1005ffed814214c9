"""Pictures: their items, colours and file formats."""
