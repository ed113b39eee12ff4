"""The commands. Each is a module with the functions ``add_arguments(parser)`` and ``run(arguments)``."""
