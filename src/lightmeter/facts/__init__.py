"""Facts: raw answers of the service, decoded into typed rows of the fact tables. No Arrow here."""
