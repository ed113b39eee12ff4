"""The tabs of the page, one module each: a builder function that lays out the controls and wires their events."""
