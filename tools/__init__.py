"""Commands that work on models and on running services: fetch, convert, verify, measure, attack."""
