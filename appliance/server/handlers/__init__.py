"""One module for each API family, named as the messages in `appliance.wire.messages`."""
