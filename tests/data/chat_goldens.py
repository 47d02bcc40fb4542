"""Makes tests/data/chat_goldens.jsonl: chats as a model's own Jinja template renders them.

Usage: chat_goldens.py TOKENIZER_CONFIG.json   (of Qwen3-VL or Qwen3-Instruct-2507; needs jinja2)
"""
import json
import pathlib
import sys

import jinja2

THINK = "<think>\nIt is 2 + 2.\n</think>\n\n4"
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Wetter für <Ort>", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}}
CALL_TEXT = {"name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


CHATS = [
    {"messages": [turn("user", "Hello"), turn("assistant", "Hi!")]},
    {"messages": [turn("system", "Be brief."), turn("user", "2+2?"), turn("assistant", "4"), turn("user", "3+3?"),
                  turn("assistant", "6")]},
    {"messages": [turn("user", "2+2?"), turn("assistant", THINK), turn("user", "sure?"), turn("assistant", THINK)]},
    {"messages": [turn("user", "only a question")]},
    {"messages": [turn("assistant", "I begin."), turn("user", ""), turn("assistant", "")]},
    {"messages": [turn("user", "\n leading\n\n"), turn("assistant", "trailing \n\n\n")]},
    {"messages": [turn("user", [{"type": "text", "text": "part one, "}, {"type": "text", "text": "part two"}]),
                  turn("assistant", [{"type": "text", "text": "你好"}])]},
    {"messages": [turn("user", "Weather?"), turn("assistant", "", tool_calls=[CALL]),
                  turn("tool", "sunny", tool_call_id="c1", name="get_weather"), turn("assistant", "Sunny.")], "tools": [TOOL]},
    {"messages": [turn("system", "S"), turn("user", "Two?"), turn("assistant", "Let me see.", tool_calls=[CALL, CALL_TEXT]),
                  turn("tool", "a"), turn("tool", [{"type": "text", "text": "b"}]), turn("assistant", "Done."),
                  turn("user", "Thanks")], "tools": [TOOL, {"name": "x", "parameters": {}, "z": [1, 2.5, None, True], "a": "\u2028\t\""}]},
    {"messages": [turn("tool", "first"), turn("user", "u"), turn("tool", "last")]},
]


def main():
    config = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    # As Hugging Face sets it up.
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(config["chat_template"])
    out = pathlib.Path(__file__).parent / "chat_goldens.jsonl"
    out.write_text("".join(json.dumps({"chat_json": json.dumps(chat), "text": template.render(**chat)}, ensure_ascii=False) + "\n"
                           for chat in CHATS), encoding="utf-8")


if __name__ == "__main__":
    main()
