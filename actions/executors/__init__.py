"""Who carries commands out, one scheduler or way each. Decides nothing."""
