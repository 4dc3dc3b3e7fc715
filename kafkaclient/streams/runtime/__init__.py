"""Running tasks: their states, their input and output, and the instance that coordinates them."""
