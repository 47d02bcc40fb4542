// What the program prints: results on stdout, errors as one line on stderr.
#pragma once

#include <string>

#include "ringfold/base/error.h"

namespace ringfold {

// RunError when stdout does not take it (a full disk, a closed pipe).
void write_stdout(const std::string& text);

// RunError when the file cannot be written.
void write_file(const std::string& file, const std::string& text);

// "ringfold: error: ..." in one line; returns the exit code.
int print_error(const Error& error);

}  // namespace ringfold
