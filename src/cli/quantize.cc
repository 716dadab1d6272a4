#include "model/quantize.h"

#include <cstdio>

#include "cli/checks.h"
#include "cli/commands.h"

namespace pf {
namespace {

struct QuantizeOptions {
  std::string in, out, type;
  int threads = 0, group_size = 32;
};

int quantize(const QuantizeOptions& o) {
  TensorType type = o.type == "q4_0"   ? TensorType::kQ4_0
                    : o.type == "q4_1" ? TensorType::kQ4_1
                                       : TensorType::kQ8_0;
  if (type == TensorType::kQ8_0 && o.group_size != 32)
    return fail(invalid("--group-size 128 is for q4_0 and q4_1; q8_0 has groups of 32"));
  Result<QuantizeReport> report = quantize_file(o.in, o.out, type, o.threads, o.group_size);
  if (!report.ok()) return fail(report.status());
  std::printf("%-40s %-6s %-6s %12s %12s %10s\n", "tensor", "from", "to", "bytes", "before",
              "rel. error");
  for (const QuantizedTensor& t : report->tensors)
    std::printf("%-40s %-6s %-6s %12lld %12lld %10.6f\n", t.name.c_str(),
                std::string(type_name(t.from)).c_str(), std::string(type_name(t.to)).c_str(),
                static_cast<long long>(t.bytes_after), static_cast<long long>(t.bytes_before),
                t.relative_error);
  std::printf("%s: %.1f MB, before %.1f MB\n", o.out.c_str(),
              1e-6 * static_cast<double>(report->bytes_after),
              1e-6 * static_cast<double>(report->bytes_before));
  return kOk;
}

}  // namespace

void declare_quantize(CLI::App* app, Run* run) {
  CLI::App* command =
      app->add_subcommand("quantize", "Write a model or draft as a quantised GGUF file");
  auto o = std::make_shared<QuantizeOptions>();
  command->add_option("in", o->in, "A .gguf file, a .safetensors file or a model folder")
      ->type_name("IN")
      ->required();
  command->add_option("out", o->out, "The file to write")->type_name("OUT")->required();
  command->add_option("--type", o->type, "Of the weights")
      ->type_name("{q4_0,q4_1,q8_0}")
      ->required()
      ->check(CLI::IsMember({"q4_0", "q4_1", "q8_0"}).description(""));
  command
      ->add_option(
          "--group-size", o->group_size,
          "Weights that share a scale, 4 bits only; 128: the file stays as large, but loaded "
          "weights take a seventh less memory [32]")
      ->type_name("{32,128}")
      ->check(CLI::IsMember({32, 128}).description(""));
  command->add_option("--threads", o->threads, "0: one per CPU [0]")
      ->type_name("N")
      ->check(whole_number(0, 4096));
  command->callback([o, run] { *run = [o] { return quantize(*o); }; });
}

}  // namespace pf
