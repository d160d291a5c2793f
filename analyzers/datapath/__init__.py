"""Work that waits for its data, data that is read repeatedly or stored too expensively."""
