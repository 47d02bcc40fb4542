// TensorBoard event files: what a step's metrics look like as scalars, and a writer of the format. The format is a
// series of framed records, each one protobuf message `Event`:
//   u64 length | u32 masked CRC-32C of those 8 bytes | message | u32 masked CRC-32C of the message   (little-endian)
// Sources: tensorflow/core/lib/io/record_writer and core/protobuf/event.proto, summary.proto (the format alone).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ringfold/report/metrics.h"

namespace ringfold {

struct Scalar {
  std::string tag;  // "group/name": TensorBoard shows a card a group
  double value = 0;
};

// docs/reference/metrics.md lists the tags. Absent metrics give no scalar.
std::vector<Scalar> scalars_of(const StepMetrics& metrics);
std::vector<Scalar> scalars_of(const EvalMetrics& metrics);
std::vector<Scalar> scalars_of(const RolloutMetrics& metrics);

// CRC-32C (Castagnoli) as the format stores it: rotated and shifted, so that a CRC of a CRC is not trivial.
uint32_t masked_crc32c(std::string_view bytes);
// One record around a message.
std::string framed_record(std::string_view message);
// The messages. Scalars are stored in single precision, as TensorBoard does.
std::string version_event(double wall_time_s);
std::string scalars_event(double wall_time_s, int64_t step, const std::vector<Scalar>& scalars);

// Appends to a new FOLDER/events.out.tfevents.TIME.HOST.PID, flushed record by record. A resumed run adds a file of its
// own beside the first; TensorBoard joins them by step. Throws RunError naming the file (disk full, no permission).
class EventFile {
 public:
  explicit EventFile(const std::string& folder);
  void append(int64_t step, const std::vector<Scalar>& scalars);
  const std::string& path() const { return path_; }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& message);

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace ringfold
