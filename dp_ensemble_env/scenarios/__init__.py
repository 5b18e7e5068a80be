"""Problems by name."""
