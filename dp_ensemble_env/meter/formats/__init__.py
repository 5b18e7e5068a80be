"""The formats of meter files, one module each; `dp_ensemble_env.meter.read` holds their registry."""
