#include "ringfold/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace ringfold {

void assertion_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "ringfold: internal error at %s:%d: %s (%s). Please report this.\n", file, line, message.c_str(),
               condition);
  std::abort();
}

}  // namespace ringfold
