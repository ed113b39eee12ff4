import gradio as gr
import pytest

from app.explore.controls import explorer_view
from app.runs.view import runs_list
from app.view import drawer_button


@pytest.mark.parametrize(("made", "event"), [(explorer_view, "missed"), (explorer_view, "export"), (runs_list, "show")])
def test_view_event_of_script_can_be_registered(made, event):
    with gr.Blocks():
        view = made()
        getattr(view, event)(lambda: None, None, None)


def test_view_has_no_other_event_attributes():
    view = drawer_button()
    with pytest.raises(AttributeError, match="'missed'"):
        _ = view.missed
    assert not hasattr(view, "likeable")


def test_view_skips_gradio_search_for_unknown_attributes(monkeypatch):
    """Gradio looks up attributes that no component has, each time it describes a component to a window."""
    asked = []
    search = gr.HTML.__getattr__
    monkeypatch.setattr(gr.HTML, "__getattr__", lambda self, name: (asked.append(name), search(self, name))[1])
    view = explorer_view()
    asked.clear()
    view.get_config()
    assert set(asked) <= {n for n in asked if f'"{n}"' in view.js_on_load}
    assert "likeable" not in asked
