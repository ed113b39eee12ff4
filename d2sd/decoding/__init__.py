"""One generation: steps on the host and on the device, drafters, verifier, sampling, inspection and cost control."""
