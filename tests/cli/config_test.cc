// Truth: the README's order of settings (flag, environment, file, default) and hand-worked values.
#include "cli/config.h"

#include <gtest/gtest.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <fstream>

#include "cli/parse_value.h"

namespace pf {
namespace {

// A Config that has read this command line, environment and file.
struct Outcome {
  Config config;
  Status status;
};

std::unique_ptr<Outcome> read(std::vector<std::string> flags,
                              std::vector<std::string> environment = {},
                              const std::string& file = "",
                              Option::Scope scope = Option::Scope::kServe) {
  auto out = std::make_unique<Outcome>();
  CLI::App app;
  out->config.declare(&app, scope);
  static int n_files = 0;
  std::string path =
      testing::TempDir() + "config-" + std::to_string(getpid()) + "-" + std::to_string(++n_files);
  if (!file.empty()) {
    std::ofstream(path) << file;
    flags.insert(flags.end(), {"--config", path});
  }
  std::reverse(flags.begin(), flags.end());  // as CLI11 wants a vector
  try {
    app.parse(flags);
  } catch (const CLI::ParseError& e) {
    out->status = invalid(e.what());
    return out;
  }
  std::vector<const char*> environ_like;
  for (const std::string& e : environment) environ_like.push_back(e.c_str());
  environ_like.push_back(nullptr);
  out->status = out->config.resolve(environ_like.data());
  std::remove(path.c_str());
  return out;
}

TEST(Config, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  auto name = [](std::vector<std::string> flags, std::vector<std::string> env,
                 const std::string& file) {
    auto r = read(flags, env, file);
    EXPECT_TRUE(r->status.ok()) << r->status.message();
    return r->config.settings().engine.max_num_seqs;
  };
  EXPECT_EQ(name({}, {}, ""), EngineOptions().max_num_seqs);
  EXPECT_EQ(name({}, {}, "max-num-seqs = 3"), 3);
  EXPECT_EQ(name({}, {"PILOTFISH_MAX_NUM_SEQS=4"}, "max-num-seqs = 3"), 4);
  EXPECT_EQ(name({"--max-num-seqs", "5"}, {"PILOTFISH_MAX_NUM_SEQS=4"}, "max-num-seqs = 3"), 5);
}

TEST(Config, EveryOptionIsReadFromAllThreeAndPrintedAsItWouldBeRead) {
  for (const Option& o : option_table()) {
    std::string value = o.get(Settings());
    if (value.empty())
      value = o.name == "speculation-tree" ? "3,2" : o.values == "HOST:PORT" ? "[::1]:65535" : "x";
    std::vector<std::string> flag{"--" + o.name, value};
    if (o.kind == Option::Kind::kSwitch)
      flag = {"--" + std::string(value == "true" ? "" : "no-") + o.name};
    auto from_flag = read(flag);
    auto from_env = read({}, {environment_name(o.name) + "=" + value});
    ASSERT_TRUE(from_flag->status.ok()) << o.name << ": " << from_flag->status.message();
    ASSERT_TRUE(from_env->status.ok()) << o.name << ": " << from_env->status.message();
    EXPECT_EQ(o.get(from_flag->config.settings()), value) << o.name;
    EXPECT_EQ(o.get(from_env->config.settings()), value) << o.name;
    // What is printed is TOML, and read back it gives the same.
    std::string printed = from_flag->config.print();
    auto from_file = read({}, {}, printed);
    ASSERT_TRUE(from_file->status.ok()) << from_file->status.message() << "\n" << printed;
    EXPECT_EQ(o.get(from_file->config.settings()), value) << o.name;
    EXPECT_NO_THROW((void)toml::parse(printed));
  }
}

TEST(Config, ANumberIsPrintedWithAllItsDigits) {
  for (const char* value : {"0.0123456789", "0.25"}) {
    auto r = read({"--alpha-base", value});
    ASSERT_TRUE(r->status.ok()) << r->status.message();
    EXPECT_NE(r->config.print().find(std::string("alpha-base = ") + value + "  #"),
              std::string::npos)
        << r->config.print();
  }
  auto r = read({"--alpha", "1e-7"});
  EXPECT_NE(r->config.print().find("alpha = '1e-07'"), std::string::npos) << r->config.print();
}

TEST(Config, PrintSaysWhereEachValueCameFrom) {
  auto r = read({"--block-size", "8"}, {"PILOTFISH_THREADS=2", "HOME=/x"}, "seed = 7\n");
  std::string text = r->config.print();
  EXPECT_NE(text.find("block-size = 8  # flag\n"), std::string::npos) << text;
  EXPECT_NE(text.find("threads = 2  # environment PILOTFISH_THREADS\n"), std::string::npos) << text;
  EXPECT_NE(text.find("seed = 7  # file "), std::string::npos) << text;
  EXPECT_NE(text.find("drain-timeout = '30s'  # default\n"), std::string::npos) << text;
}

TEST(Config, UnknownKeysAndVariablesAreErrors) {
  EXPECT_NE(read({}, {}, "max-num-seqz = 3")->status.message().find("max-num-seqz"),
            std::string::npos);
  EXPECT_NE(read({}, {"PILOTFISH_MODLE=x"})->status.message().find("PILOTFISH_MODLE"),
            std::string::npos);
  EXPECT_FALSE(read({"--max-num-seqz", "3"})->status.ok());
}

TEST(Config, VariablesOfKubernetesArePassedOver) {
  std::vector<std::string> variables{
      "PILOTFISH_SERVICE_HOST=10.0.0.1",         "PILOTFISH_SERVICE_PORT=50051",
      "PILOTFISH_SERVICE_PORT_GRPC=50051",       "PILOTFISH_PORT=tcp://10.0.0.1:50051",
      "PILOTFISH_PORT_50051_TCP=tcp://10.0.0.1", "PILOTFISH_PORT_50051_TCP_ADDR=10.0.0.1",
      "PILOTFISH_PORT_50051_TCP_PORT=50051",     "PILOTFISH_PORT_50051_TCP_PROTO=tcp",
      "PILOTFISH_METRICS_SERVICE_HOST=10.0.0.2", "PILOTFISH_METRICS_PORT=tcp://10.0.0.2:9464"};
  auto r = read({}, variables);
  EXPECT_TRUE(r->status.ok()) << r->status.message();
  EXPECT_EQ(r->config.ignored().size(), variables.size());
  EXPECT_FALSE(read({}, {"PILOTFISH_PORT=50051"})->status.ok()) << "a person wrote this one";
}

struct Wrong {
  std::vector<std::string> flags, environment;
  const char* file;
  const char* where;
};

TEST(Config, WrongValuesSayWhereInOneLine) {
  for (const Wrong& w : std::vector<Wrong>{
           {{"--max-num-seqs", "0"}, {}, "", "--max-num-seqs"},
           {{"--max-num-seqs", "3x"}, {}, "", "--max-num-seqs"},
           {{"--max-num-seqs", "99999999999999999999"}, {}, "", "--max-num-seqs"},
           {{"--device", "tpu"}, {}, "", "{auto,cpu,cuda}"},
           {{"--speculation-tree", "8,8,8"}, {}, "", "64"},
           {{"--speculation-tree", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"}, {}, "", "16 deep"},
           {{"--alpha", "0"}, {}, "", "(0, 1]"},
           {{"--alpha", "1.1"}, {}, "", "(0, 1]"},
           {{"--alpha", "nan"}, {}, "", "(0, 1]"},
           {{"--speculation-tree-nodes", "65"}, {}, "", "64"},
           {{"--gpu-memory-utilization", "nan"}, {}, "", "0.01..1"},
           {{"--drain-timeout", "30"}, {}, "", "30s"},
           {{"--listen", "127.0.0.1:99999"}, {}, "", "--listen: needs a port in 0..65535"},
           {{"--listen", ""}, {}, "", "--listen: needs HOST:PORT"},
           {{"--metrics-listen", "localhost"}, {}, "", "--metrics-listen: needs HOST:PORT"},
           {{}, {"PILOTFISH_ADMIN_LISTEN=:-1"}, "", "PILOTFISH_ADMIN_LISTEN: needs a port"},
           {{}, {}, "listen = '::1:65536'", ":1: listen: needs a port"},
           {{}, {"PILOTFISH_ENABLE_PREFIX_CACHING=maybe"}, "", "PILOTFISH_ENABLE_PREFIX_CACHING"},
           {{}, {}, "max-num-seqs = 'many'", ":1: max-num-seqs"},
           {{}, {}, "\n[model]\nx = 1", "model"},
           {{}, {}, "device = ['cpu']", "device"},
           {{}, {}, "max-num-seqs = ", ":1"}}) {
    Status s = read(w.flags, w.environment, w.file)->status;
    EXPECT_FALSE(s.ok()) << w.where;
    EXPECT_NE(s.message().find(w.where), std::string::npos) << s.message();
    EXPECT_EQ(s.message().find('\n'), std::string::npos) << s.message();
  }
  EXPECT_NE(read({"--config", "/nonexistent.toml"})->status.message().find("/nonexistent.toml"),
            std::string::npos);
}

TEST(Config, ErrorsPointToTheHelpOfTheirOwnCommand) {
  CLI::App app;
  Config config;
  config.declare(app.add_subcommand("generate"), Option::Scope::kEngine);
  const char* const environment[] = {"PILOTFISH_NOPE=1", nullptr};
  EXPECT_EQ(config.resolve(environment).message(),
            "PILOTFISH_NOPE: no such setting; see pilotfish generate --help");
}

// A folder was an empty configuration.
TEST(Config, AFolderIsNoConfiguration) {
  EXPECT_EQ(read({"--config", "/tmp"})->status.message(),
            "--config: /tmp: is a folder; a file is needed");
  EXPECT_EQ(read({}, {"PILOTFISH_CONFIG=/tmp"})->status.message(),
            "PILOTFISH_CONFIG: /tmp: is a folder; a file is needed");
}

TEST(Config, NoneOrAnyPortMayBeListenedOn) {
  auto r = read({"--listen", "unix:/run/p.sock", "--metrics-listen", "", "--admin-listen", "h:0"});
  ASSERT_TRUE(r->status.ok()) << r->status.message();
  EXPECT_EQ(r->config.settings().server.listen, "unix:/run/p.sock");
  EXPECT_EQ(r->config.settings().server.metrics_listen, "");
}

TEST(Config, DraftsMayBeRepeatedNamedAndListed) {
  auto drafts = [](const std::unique_ptr<Outcome>& r) {
    EXPECT_TRUE(r->status.ok()) << r->status.message();
    std::string text;
    for (const DraftOption& d : r->config.settings().engine.drafts)
      text += "(" + d.name + "|" + d.path + ")";
    return text;
  };
  EXPECT_EQ(drafts(read({"--draft", "a.gguf", "--draft", "n=b"})), "(|a.gguf)(n|b)");
  EXPECT_EQ(drafts(read({"--draft-model", "self"})), "(|self)");
  EXPECT_EQ(drafts(read({}, {"PILOTFISH_DRAFT=a,n=b"})), "(|a)(n|b)");
  EXPECT_EQ(drafts(read({}, {}, "draft = ['a', 'n=b']")), "(|a)(n|b)");
  EXPECT_EQ(drafts(read({}, {}, "draft = 'a'")), "(|a)");
  EXPECT_EQ(drafts(read({"--draft", "c"}, {"PILOTFISH_DRAFT=a"})), "(|c)") << "rank, not a sum";
}

TEST(Config, SwitchesHaveAnOpposite) {
  EXPECT_TRUE(read({})->config.settings().engine.prefix_caching);
  EXPECT_FALSE(read({"--no-enable-prefix-caching"})->config.settings().engine.prefix_caching);
  EXPECT_FALSE(read({}, {}, "reflection = false")->config.settings().server.reflection);
  EXPECT_TRUE(
      read({"--reflection"}, {}, "reflection = false")->config.settings().server.reflection);
}

TEST(Config, CommandsWithoutAServerTakeItsSettingsFromElsewhereInSilence) {
  auto r = read({}, {"PILOTFISH_LISTEN=1.2.3.4:5"}, "max-queue = 9", Option::Scope::kEngine);
  EXPECT_TRUE(r->status.ok()) << r->status.message();
  EXPECT_EQ(r->config.print().find("listen"), std::string::npos);
  EXPECT_FALSE(read({"--listen", "x"}, {}, "", Option::Scope::kEngine)->status.ok());
}

TEST(Config, ConfigMayComeFromTheEnvironment) {
  std::string path = testing::TempDir() + "env-config-" + std::to_string(getpid());
  std::ofstream(path) << "seed = 11";
  auto r = read({}, {"PILOTFISH_CONFIG=" + path});
  EXPECT_EQ(r->config.settings().engine.seed, 11u) << r->status.message();
  std::remove(path.c_str());
}

TEST(ParseValue, KnowsItsUnits) {
  EXPECT_EQ(*parse_token_count("4096"), 4096);
  EXPECT_EQ(*parse_token_count("32k"), 32'000);
  EXPECT_EQ(*parse_token_count("32K"), 32'768);
  EXPECT_EQ(*parse_token_count("1m"), 1'000'000);
  EXPECT_EQ(*parse_token_count("1M"), 1'048'576);
  for (const char* bad : {"", "k", "32kk", "3.2k", "32 k", "9223372036854775807k", "0x10", "+5"})
    EXPECT_FALSE(parse_token_count(bad).ok()) << bad;
  EXPECT_EQ(*parse_duration_us("250ms"), 250'000);
  EXPECT_EQ(*parse_duration_us("30s"), 30'000'000);
  EXPECT_EQ(*parse_duration_us("2m"), 120'000'000);
  for (const char* bad : {"", "30", "-1s", "1h", "s"})
    EXPECT_FALSE(parse_duration_us(bad).ok()) << bad;
  for (int64_t us : {0, 250'000, 30'000'000, 120'000'000})
    EXPECT_EQ(*parse_duration_us(print_duration(us)), us);
  for (const char* bad : {"", "nan", "inf", "1x", "1e999"})
    EXPECT_FALSE(parse_number(bad).ok()) << bad;
  EXPECT_EQ(*parse_number("0.75"), 0.75);
  EXPECT_EQ(split_list("a, b,c"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(split_list(""), std::vector<std::string>{});
}

}  // namespace
}  // namespace pf
