#include "fuzz/target.h"
#include "model/safetensors.h"

const pf::fuzz::Target pf::fuzz::target{"safetensors", 200000};

// A file, or the index of several when it begins as JSON does.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pf;
  if (size > 0 && data[0] == '{') {
    Result<ShardIndex> index = parse_shard_index(fuzz::text_of(data, size));
    if (!index.ok()) return fuzz::check_refusal(index.status()), 0;
    for (const std::string& file : index->files)
      check(file.find('/') == std::string::npos && file != "..", "a shard in another folder");
    return ++fuzz::n_taken, 0;
  }
  Result<SafetensorsFile> file = SafetensorsFile::parse(fuzz::bytes_of(data, size));
  if (!file.ok()) return fuzz::check_refusal(file.status()), 0;
  for (const Tensor& t : file->tensors()) {
    check(t.data.data() >= fuzz::bytes_of(data, size).data() &&
              t.data.data() + t.data.size() <= fuzz::bytes_of(data, size).data() + size,
          "a tensor outside of its file");
    fuzz::check_readable(t.data);
  }
  ++fuzz::n_taken;
  return 0;
}
