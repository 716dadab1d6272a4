#include "cli/option_table.h"

#include <algorithm>

#include "cli/parse_value.h"
#include "server/served_model.h"

namespace pf {
namespace {

using Kind = Option::Kind;
using Scope = Option::Scope;

struct Row {
  const char *name, *help;
};

// Finds a field inside Settings.
template <class T>
using Field = std::function<T&(Settings&)>;

template <class T>
T value_of(const Field<T>& field, const Settings& settings) {
  return field(const_cast<Settings&>(settings));
}

std::string bounds(int64_t low, int64_t high) {
  return high == INT64_MAX || high == INT32_MAX
             ? "needs a whole number >= " + std::to_string(low)
             : "needs a whole number in " + std::to_string(low) + ".." + std::to_string(high);
}

// HOST:PORT, or unix:PATH. gRPC takes a larger number modulo 65536.
Status check_address(const std::string& text) {
  if (text.starts_with("unix:") && text.size() > 5) return {};
  size_t colon = text.rfind(':');
  Result<int64_t> port = parse_integer(colon == std::string::npos ? "" : text.substr(colon + 1));
  if (!port.ok()) return invalid("needs HOST:PORT such as 127.0.0.1:50051");
  if (*port < 0 || *port > 65535) return invalid("needs a port in 0..65535");
  return {};
}

// Makes rows of the table; remembers the group and scope that they stand in.
class Table {
 public:
  void section(const char* group, Scope scope) {
    group_ = group;
    scope_ = scope;
  }

  Option& text(Row row, const char* values, Field<std::string> field) {
    return add(
        row, Kind::kText, values,
        [field](const std::string& v, Settings* s) { return field(*s) = v, Status(); },
        [field](const Settings& s) { return value_of(field, s); });
  }

  void choice(Row row, std::vector<std::string> words, Field<std::string> field) {
    std::string values = "{" + join_list(words) + "}";
    text(row, "", field).values = values;
    rows.back().set = [=](const std::string& v, Settings* s) {
      if (std::find(words.begin(), words.end(), v) == words.end())
        return invalid("needs one of " + values);
      return field(*s) = v, Status();
    };
  }

  void address(Row row, bool may_be_empty, Field<std::string> field) {
    text(row, "HOST:PORT", field).set = [=](const std::string& v, Settings* s) {
      if (!(may_be_empty && v.empty()))
        if (Status bad = check_address(v); !bad.ok()) return bad;
      return field(*s) = v, Status();
    };
  }

  template <class T>
  void integer(Row row, int64_t low, int64_t high, Field<T> field, bool tokens = false) {
    add(
        row, Kind::kNumber, tokens ? "TOKENS" : "N",
        [=](const std::string& v, Settings* s) {
          Result<int64_t> n = tokens ? parse_token_count(v) : parse_integer(v);
          if (!n.ok()) return n.status();
          if (*n < low || *n > high) return invalid(bounds(low, high));
          return field(*s) = static_cast<T>(*n), Status();
        },
        [field](const Settings& s) { return std::to_string(value_of(field, s)); });
  }

  template <class T>
  void number(Row row, double low, double high, const char* needs, Field<T> field) {
    add(
        row, Kind::kNumber, "X",
        [=](const std::string& v, Settings* s) {
          Result<double> x = parse_number(v);
          if (!x.ok() || !(*x >= low && *x <= high)) return invalid(needs);
          return field(*s) = static_cast<T>(*x), Status();
        },
        [field](const Settings& s) { return print_number(value_of(field, s)); });
  }

  void duration(Row row, Field<int64_t> field) {
    add(
        row, Kind::kText, "TIME",
        [field](const std::string& v, Settings* s) {
          Result<int64_t> us = parse_duration_us(v);
          if (!us.ok()) return us.status();
          return field(*s) = *us, Status();
        },
        [field](const Settings& s) { return print_duration(value_of(field, s)); });
  }

  void toggle(Row row, Field<bool> field) {
    add(
        row, Kind::kSwitch, "",
        [field](const std::string& v, Settings* s) {
          Result<bool> on = parse_bool(v);
          if (!on.ok()) return on.status();
          return field(*s) = *on, Status();
        },
        [field](const Settings& s) { return std::string(value_of(field, s) ? "true" : "false"); });
  }

  Option& add(Row row, Kind kind, const char* values,
              std::function<Status(const std::string&, Settings*)> set,
              std::function<std::string(const Settings&)> get) {
    rows.push_back(
        {row.name, kind, scope_, group_, values, row.help, false, std::move(set), std::move(get)});
    return rows.back();
  }

  std::vector<Option> rows;

 private:
  const char* group_ = "";
  Scope scope_ = Scope::kEngine;
};

#define PF_FIELD(path) \
  [](Settings & s) -> auto& { return s.path; }

Status add_draft(const std::string& value, Settings* s) {
  size_t equals = value.find('=');
  DraftOption draft;
  if (equals != std::string::npos) draft.name = value.substr(0, equals);
  draft.path = equals == std::string::npos ? value : value.substr(equals + 1);
  if (draft.path.empty()) return invalid("needs [NAME=]PATH or self");
  s->engine.drafts.push_back(draft);
  return {};
}

std::string print_drafts(const Settings& s) {
  std::vector<std::string> items;
  for (const DraftOption& d : s.engine.drafts)
    items.push_back(d.name.empty() ? d.path : d.name + "=" + d.path);
  return join_list(items);
}

Status set_tree(const std::string& value, Settings* s) {
  s->engine.speculation_tree.clear();
  int64_t level = 1, nodes = 0;
  for (const std::string& item : split_list(value)) {
    Result<int64_t> width = parse_integer(item);
    bool ok = width.ok() && *width >= 1 && *width <= kMaxTreeNodes;
    if (ok) nodes += level *= *width;
    if (!ok || nodes > kMaxTreeNodes)
      return invalid("needs widths per depth such as 3,2,1, at most 64 nodes in all");
    s->engine.speculation_tree.push_back(static_cast<int32_t>(*width));
  }
  if (s->engine.speculation_tree.size() > static_cast<size_t>(kMaxDraftTokens))
    return invalid("must be at most 16 deep, as in a request");
  return {};
}

std::string print_tree(const Settings& s) {
  std::vector<std::string> items;
  for (int32_t width : s.engine.speculation_tree) items.push_back(std::to_string(width));
  return join_list(items);
}

Status set_alpha(const std::string& value, Settings* s) {
  if (value == "dynamic") return s->engine.alpha = 0, Status();
  Result<double> x = parse_number(value);
  if (!x.ok() || !(*x > 0 && *x <= 1)) return invalid("needs a number in (0, 1], or dynamic");
  return s->engine.alpha = static_cast<float>(*x), Status();
}

std::string print_alpha(const Settings& s) {
  return s.engine.alpha > 0 ? print_number(s.engine.alpha) : "dynamic";
}

void add_model(Table* t) {
  t->section("Model", Scope::kEngine);
  t->text({"model", "The model: a .gguf file, or a folder with config.json and .safetensors"},
          "PATH", PF_FIELD(engine.model));
  t->choice({"device", "Where it runs"}, {"auto", "cpu", "cuda"}, PF_FIELD(engine.device));
  t->integer<int32_t>({"tensor-parallel-size",
                       "CUDA devices that share the model (experimental; NCCL); drafts stay on the "
                       "first"},
                      1, 64, PF_FIELD(engine.tensor_parallel_size));
  t->choice({"dtype",
             "Type of weights and KV; auto: on CUDA that of a 16-bit file, else bf16; on the CPU "
             "bf16"},
            {"auto", "bf16", "fp16", "fp32"}, PF_FIELD(engine.dtype));
  t->choice(
      {"kv-cache-dtype", "Type of KV: as dtype says, or int8 with a scale per token and head"},
      {"auto", "int8"}, PF_FIELD(engine.kv_cache_dtype));
  t->choice({"quantization", "Repacks the model's weights while loading"}, {"none", "int8", "int4"},
            PF_FIELD(engine.quantization));
  t->integer<int64_t>({"max-model-len", "Longest context; 0: the model's own"}, 0, INT32_MAX,
                      PF_FIELD(engine.max_model_len), true);
  t->integer<uint64_t>({"seed", "Of requests without one; 0: drawn from the system"}, 0, INT64_MAX,
                       PF_FIELD(engine.seed));
}

// clamp(base - max(0, (load - busy-from) busy-slope) + max(0, (accept-below - rate) accept-slope),
// min, max), below quiet-below at most quiet-max; loads in percent of the verify curve's knee.
void add_dynamic_alpha(Table* t) {
  auto share = [t](Row row, Field<double> field) {
    t->number<double>(row, 0.01, 1, "needs a number in 0.01..1", std::move(field));
  };
  auto percent = [t](Row row, Field<double> field) {
    t->number<double>(row, 0, 1000, "needs a percentage in 0..1000", std::move(field));
  };
  auto slope = [t](Row row, Field<double> field) {
    t->number<double>(row, 0, 100, "needs a number in 0..100", std::move(field));
  };
  share({"alpha-smoothing", "Weight of the present load in dynamic alpha"},
        PF_FIELD(engine.dynamic_alpha.smoothing));
  share({"alpha-base", "Dynamic alpha where neither load nor acceptance moves it"},
        PF_FIELD(engine.dynamic_alpha.base));
  percent({"alpha-busy-from", "Load in percent above which it falls"},
          PF_FIELD(engine.dynamic_alpha.busy_from));
  slope({"alpha-busy-slope", "By how much it falls per percent"},
        PF_FIELD(engine.dynamic_alpha.busy_slope));
  share({"alpha-accept-below", "Acceptance rate below which it rises"},
        PF_FIELD(engine.dynamic_alpha.accept_below));
  slope({"alpha-accept-slope", "By how much it rises per unit of the rate"},
        PF_FIELD(engine.dynamic_alpha.accept_slope));
  share({"alpha-min", "It is never less"}, PF_FIELD(engine.dynamic_alpha.least));
  share({"alpha-max", "It is never more"}, PF_FIELD(engine.dynamic_alpha.most));
  percent({"alpha-quiet-below", "Load in percent below which alpha-quiet-max holds"},
          PF_FIELD(engine.dynamic_alpha.quiet_below));
  share({"alpha-quiet-max", "It is never more while the load is low"},
        PF_FIELD(engine.dynamic_alpha.quiet_most));
}

void add_speculation(Table* t) {
  t->section("Speculation", Scope::kEngine);
  Option& draft = t->add(
      {"draft", "A draft model or head: a file, a folder, or self (the model's own first layers)"},
      Kind::kList, "[NAME=]PATH|self", add_draft, print_drafts);
  draft.repeatable = true;
  t->integer<int32_t>({"draft-layers", "Layers of a draft that is self (0: all), or of early-exit"},
                      0, 100000, PF_FIELD(engine.draft_layers));
  t->choice({"draft-quantization", "Repacks the draft's weights while loading"},
            {"int4", "int8", "none"}, PF_FIELD(engine.draft_quantization));
  t->choice({"draft-device", "Where draft models run; auto: with the model"},
            {"auto", "cpu", "cuda"}, PF_FIELD(engine.draft_device));
  t->integer<int64_t>({"max-prefix-len",
                       "Longest text that a draft model sees as a whole; of longer ones a window"},
                      16, INT32_MAX, PF_FIELD(engine.max_prefix_len), true);
  t->number<float>({"draft-temperature", "Of the draft's own draws; -1: the request's"}, -1, 100,
                   "needs a number in 0..100, or -1 for the request's",
                   PF_FIELD(engine.draft_temperature));
  t->number<float>({"draft-rope-theta", "For a draft whose file has none; 0: the file's"}, 0, 1e9,
                   "needs a number in 0..1e9", PF_FIELD(engine.draft_rope_theta));
  t->text(
      {"draft-lora", "A LoRA adapter (PEFT's folder) that is merged into a draft while loading"},
      "[NAME=]FOLDER", PF_FIELD(engine.draft_lora));
  t->add(
      {"speculation",
       "Drafters to choose among, by measured gain for each request; cascade: n-grams filtered by "
       "the model"},
      Kind::kList, "{off,auto,ngram,suffix,lookahead,early-exit,model,eagle,medusa,cascade},...",
      [](const std::string& v, Settings* s) {
        s->engine.speculation = split_list(v);
        return s->engine.speculation.empty()
                   ? invalid("needs a name: off, auto or drafters, see --help")
                   : Status();
      },
      [](const Settings& s) { return join_list(s.engine.speculation); });
  t->integer<int32_t>(
      {"num-speculative-tokens",
       "Tokens drafted in a round: exactly (fixed) or at most; 0: none; -1: 5 (fixed, "
       "rate) or 10 (adaptive, window)"},
      -1, kMaxDraftTokens, PF_FIELD(engine.num_speculative_tokens));
  t->choice({"draft-length", "How many are drafted: by measured gain, by a simple rule, or fixed"},
            {"adaptive", "window", "rate", "fixed"}, PF_FIELD(engine.draft_length));
  t->add({"speculation-tree", "Widths per depth, such as 3,2,1; empty: chains"}, Kind::kList,
         "W,...", set_tree, print_tree);
  t->integer<int32_t>({"speculation-tree-nodes",
                       "Nodes of trees that grow where they are likeliest kept, as deep as "
                       "num-speculative-tokens; 0: none do"},
                      0, kMaxTreeNodes, PF_FIELD(engine.speculation_tree_nodes));
  t->choice(
      {"acceptance", "Rule of requests that name none; auto, rejection and coupled are exact"},
      {"auto", "rejection", "coupled", "threshold", "threshold-literal", "typical"},
      PF_FIELD(engine.acceptance));
  t->add({"alpha", "Of threshold rules that name none: in (0, 1], 1 is exact, or dynamic"},
         Kind::kText, "X|dynamic", set_alpha, print_alpha);
  t->choice({"alpha-load", "Load by which dynamic alpha goes: rows of a step, or NVIDIA's figure"},
            {"rows", "nvml"}, PF_FIELD(engine.alpha_load));
  add_dynamic_alpha(t);
}

void add_capacity(Table* t) {
  t->section("Capacity", Scope::kEngine);
  t->integer<int32_t>({"threads", "Threads that compute; 0: the CPUs of this process"}, 0, 4096,
                      PF_FIELD(engine.threads));
  t->integer<int32_t>({"max-num-seqs", "Sequences in one step"}, 1, 4096,
                      PF_FIELD(engine.max_num_seqs));
  t->integer<int32_t>({"max-num-batched-tokens", "Rows in one step"}, 1, 1 << 20,
                      PF_FIELD(engine.max_num_batched_tokens), true);
  t->integer<int32_t>({"block-size", "Tokens in a KV block"}, 1, 4096, PF_FIELD(engine.block_size));
  t->integer<int32_t>({"kv-blocks", "KV blocks; 0: as memory allows"}, 0, INT32_MAX,
                      PF_FIELD(engine.kv_blocks));
  t->number<double>({"gpu-memory-utilization", "Share of free memory to use, also on the CPU"},
                    0.01, 1, "needs a number in 0.01..1", PF_FIELD(engine.memory_utilization));
  t->toggle({"enable-prefix-caching", "Keep KV of earlier prompts"},
            PF_FIELD(engine.prefix_caching));
  t->toggle({"cuda-graphs", "Launch small steps and drafts as CUDA graphs; the text is the same"},
            PF_FIELD(engine.cuda_graphs));
  t->choice({"prefill-gemm", "A prompt's products on CUDA; cublas: sums that depend on its cuts"},
            {"own", "cublas"}, PF_FIELD(engine.prefill_gemm));
}

void add_serving(Table* t) {
  t->section("Serving", Scope::kServe);
  t->address({"listen", "Where clients connect"}, false, PF_FIELD(server.listen));
  t->address({"admin-listen", "Where operators connect (Admin, pilotfish top); empty: off"}, true,
             PF_FIELD(server.admin_listen));
  t->address({"metrics-listen", "Prometheus metrics and probes; empty: off"}, true,
             PF_FIELD(server.metrics_listen));
  t->text({"served-model-name", "As clients call the model; empty: the name of its file"}, "NAME",
          PF_FIELD(served_model_name));
  t->integer<int32_t>({"max-queue", "Requests that may wait"}, 1, 1 << 20,
                      PF_FIELD(engine.max_queue));
  t->duration({"drain-timeout", "How long calls in flight may go on after SIGTERM"},
              PF_FIELD(server.drain_timeout_us));
  t->toggle({"reflection", "gRPC reflection, by which clients find the services"},
            PF_FIELD(server.reflection));
  t->section("Security", Scope::kServe);
  t->text({"tls-cert", "Certificate chain (PEM); a changed file is taken up by itself"}, "FILE",
          PF_FIELD(server.tls.cert));
  t->text({"tls-key", "Private key (PEM)"}, "FILE", PF_FIELD(server.tls.key));
  t->text({"tls-client-ca", "Clients must show a certificate of this authority (PEM)"}, "FILE",
          PF_FIELD(server.tls.client_ca));
  t->text({"auth-token-file", "Bearer tokens that are let in, one a line"}, "FILE",
          PF_FIELD(server.auth_token_file));
  t->section("Logging", Scope::kServe);
  t->choice({"log-format", "Lines on stderr"}, {"text", "json"}, PF_FIELD(log_format));
  t->choice({"log-level", "The least that is said"}, {"debug", "info", "warn", "error", "off"},
            PF_FIELD(log_level));
}

#undef PF_FIELD

}  // namespace

const std::vector<Option>& option_table() {
  static const std::vector<Option> table = [] {
    Table t;
    add_model(&t);
    add_speculation(&t);
    add_capacity(&t);
    add_serving(&t);
    return std::move(t.rows);
  }();
  return table;
}

std::string environment_name(const std::string& option) {
  std::string name = "PILOTFISH_";
  for (char c : option) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

}  // namespace pf
