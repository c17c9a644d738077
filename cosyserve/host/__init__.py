"""The application on one machine, above the services: supervision, doctor, hardware and start."""
