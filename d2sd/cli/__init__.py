"""The commands, one file each: ``HELP``, ``add_arguments(parser)``, ``run(arguments)``."""
