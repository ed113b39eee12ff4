"""A step as a plotly figure, and the viewer that draws whole runs."""
