"""What everything else stands on: identifiers, errors, configuration and the four seams."""
