#include "model/model_files.h"

#include <filesystem>
#include <vector>

#include "base/mapped_file.h"
#include "model/assemble_medusa.h"

namespace pf {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The config.json beside Medusa heads; nothing: it is no such file, or there is none.
std::string medusa_config(const fs::path& folder) {
  const std::string path = (folder / "config.json").string();
  if (!is_there(path)) return "";
  auto file = MappedFile::open(path);
  if (!file.ok()) return "";
  std::string text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  return is_medusa_config(text) ? text : "";
}

Result<ModelFiles> find_in_folder(const std::string& folder) {
  using Form = ModelFiles::Form;
  const std::string single = (fs::path(folder) / "model.safetensors").string();
  const std::string medusa = (fs::path(folder) / kMedusaFile).string(),
                    medusa_json = medusa_config(folder), index = single + ".index.json";
  if (is_there(medusa)) return ModelFiles{Form::kMedusa, medusa, folder, medusa_json};
  if (!medusa_json.empty() && is_there(single))
    return ModelFiles{Form::kMedusa, single, folder, medusa_json};
  if (is_there(index)) return ModelFiles{Form::kShards, index, folder};
  if (is_there(single)) return ModelFiles{Form::kSafetensors, single, folder};
  auto gguf = only_gguf_in(folder);
  if (gguf.ok()) return ModelFiles{Form::kGguf, *gguf, folder};
  if (is_there(fs::path(folder) / "config.json")) return ModelFiles{Form::kConfigOnly, "", folder};
  return gguf.status();
}

}  // namespace

Result<std::string> only_gguf_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> found;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->path().extension() == ".gguf") found.push_back(at->path().string());
  }
  if (error) return Status(Code::kNotFound, folder + ": " + error.message());
  if (found.size() == 1) return found.front();
  return invalid(folder + ": " +
                 (found.empty() ? "no model.safetensors, model.safetensors.index.json or .gguf file"
                                : "several .gguf files; name one of them"));
}

Result<ModelFiles> find_model_files(const std::string& path) {
  using Form = ModelFiles::Form;
  std::error_code error;
  if (fs::is_directory(path, error)) return find_in_folder(path);
  if (!is_there(path)) return Status(Code::kNotFound, path + ": No such file or directory");
  const fs::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  if (file.extension() != ".safetensors") return ModelFiles{Form::kGguf, path, folder};
  const std::string medusa_json = medusa_config(folder);
  const bool heads = file.filename() == kMedusaFile || !medusa_json.empty();
  return ModelFiles{heads ? Form::kMedusa : Form::kSafetensors, path, folder, medusa_json};
}

}  // namespace pf
