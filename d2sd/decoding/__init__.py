"""One generation: cycles on the host and on the device, proposer, drafters, verifier, sampling, inspection, cost."""
