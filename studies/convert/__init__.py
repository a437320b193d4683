"""J-HMDB, AIRTLab and CAVIAR as tables of actors."""
