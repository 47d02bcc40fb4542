// What an action throws, as text.
#pragma once

#include <string>

namespace ringfold {

// The message of the E that `action` throws; "nothing thrown" or "another exception" otherwise.
template <typename E, typename Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "nothing thrown";
}

}  // namespace ringfold
