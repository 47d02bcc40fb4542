#include "ringfold/mesh/launch_env.h"
namespace ringfold {
LaunchEnv read_launch_env() {
  return {};
}
}  // namespace ringfold
