"""Views of the page: Gradio components with their own drawing code."""
