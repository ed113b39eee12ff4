"""How the passes of the models are run: eager, with fixed shapes, or captured as CUDA graphs; their buffers and clock."""
