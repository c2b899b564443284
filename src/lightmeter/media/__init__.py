"""The only door to picture and video decoders: facts, safe decoding, frame sampling, fingerprints."""
