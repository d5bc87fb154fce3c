"""Where rows come from, block by block."""
