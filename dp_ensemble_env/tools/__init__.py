"""Small tools that every other part uses: checks, registries, files, compiled functions, the terminal."""
