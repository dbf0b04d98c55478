"""The memory behind what people run today, one adapter a package. Each needs an extra; nothing else needs it."""
