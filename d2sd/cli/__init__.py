"""The commands, one file each: ``add_arguments(parser)``, ``run(arguments)``."""
