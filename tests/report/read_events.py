#!/usr/bin/env python3
"""Prints an event file as TensorBoard's own reader sees it. Usage: read_events.py FILE"""

import sys

from tensorboard.backend.event_processing import event_file_loader


def main():
    for event in event_file_loader.EventFileLoader(sys.argv[1]).Load():
        if event.file_version:
            print("version", event.file_version)
        for value in event.summary.value:
            # The loader turns simple values into tensors of one float.
            print(event.step, value.tag, value.tensor.float_val[0])


if __name__ == "__main__":
    main()
