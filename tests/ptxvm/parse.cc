// A recursive-descent parser over a token list. PTX as nvcc writes it, inline assembly included:
// nested `{ }` scopes with their own registers, several statements on a line, `.reg.b16` without a
// space, C suffixes on numbers. Debug sections are skipped; `.loc` chains are kept, because a
// finding is worth little without its source line.

#include "ptxvm/parse.h"

#include <cctype>
#include <map>

namespace pf::ptxvm {
namespace {

struct Token {
  enum class Form : uint8_t { kName, kNumber, kString, kPunct, kEnd };
  Form form;
  std::string text;
  int line;
};

bool starts_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '%' ||
         c == '$';
}
bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '%' ||
         c == '$';
}

class Lexer {
 public:
  explicit Lexer(const std::string& text) : s_(text) {}

  std::vector<Token> run() {
    std::vector<Token> out;
    while (skip_space(), i_ < s_.size()) {
      char c = s_[i_];
      if (starts_name(c)) {
        name(out);
      } else if (std::isdigit(static_cast<unsigned char>(c))) {
        size_t a = i_;
        while (i_ < s_.size() &&
               (std::isalnum(static_cast<unsigned char>(s_[i_])) || s_[i_] == '.'))
          ++i_;
        out.push_back({Token::Form::kNumber, s_.substr(a, i_ - a), line_});
      } else if (c == '"') {
        size_t end = s_.find('"', i_ + 1);
        if (end == std::string::npos) throw PtxError("a string without its end", line_);
        out.push_back({Token::Form::kString, s_.substr(i_ + 1, end - i_ - 1), line_});
        i_ = end + 1;
      } else {
        out.push_back({Token::Form::kPunct, std::string(1, c), line_});
        ++i_;
      }
    }
    out.push_back({Token::Form::kEnd, "end of text", line_});
    return out;
  }

 private:
  void skip_space() {
    while (i_ < s_.size()) {
      if (s_[i_] == '\n')
        ++line_, ++i_;
      else if (std::isspace(static_cast<unsigned char>(s_[i_])))
        ++i_;
      else if (s_.compare(i_, 2, "//") == 0)
        i_ = std::min(s_.find('\n', i_), s_.size());
      else if (s_.compare(i_, 2, "/*") == 0) {
        size_t end = s_.find("*/", i_);
        if (end == std::string::npos) throw PtxError("a comment without its end", line_);
        for (; i_ < end + 2; ++i_) line_ += s_[i_] == '\n';
      } else
        return;
    }
  }

  void name(std::vector<Token>& out) {
    size_t a = i_;
    while (i_ < s_.size() && (in_name(s_[i_]) || s_.compare(i_, 2, "::") == 0 ||
                              (i_ > a && s_[i_] == ':' && s_[i_ - 1] == ':')))
      ++i_;
    std::string text = s_.substr(a, i_ - a);
    if (text[0] != '.') {
      out.push_back({Token::Form::kName, text, line_});
      return;
    }
    for (size_t p = 0; p < text.size();) {  // ".reg.b16" is two directives
      size_t q = std::min(text.find('.', p + 1), text.size());
      out.push_back({Token::Form::kName, text.substr(p, q - p), line_});
      p = q;
    }
  }

  const std::string& s_;
  size_t i_ = 0;
  int line_ = 1;
};

class Parser {
 public:
  explicit Parser(const std::string& text) : tokens_(Lexer(text).run()) {}

  Unit run() {
    while (peek().form != Token::Form::kEnd) top();
    return std::move(unit_);
  }

 private:
  const Token& peek(int n = 0) const { return tokens_[std::min(at_ + n, tokens_.size() - 1)]; }
  Token next() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool is(const char* text, int n = 0) const {
    return peek(n).form != Token::Form::kString && peek(n).text == text;
  }
  bool take(const char* text) {
    bool yes = is(text);
    if (yes) ++at_;
    return yes;
  }
  void expect(const char* text) {
    if (!take(text)) fail("expected '" + std::string(text) + "' before '" + peek().text + "'");
  }
  [[noreturn]] void fail(const std::string& what) const { throw PtxError(what, peek().line); }
  int64_t integer() {
    bool minus = take("-");
    if (peek().form != Token::Form::kNumber) fail("expected a number before '" + peek().text + "'");
    auto v = static_cast<int64_t>(std::stoull(next().text, nullptr, 0));
    return minus ? -v : v;
  }
  void skip_braces() {
    expect("{");
    for (int depth = 1; depth > 0;) {
      if (peek().form == Token::Form::kEnd) fail("a section without its end");
      Token t = next();
      depth += t.form == Token::Form::kPunct ? (t.text == "{") - (t.text == "}") : 0;
    }
  }

  void top() {
    if (take(".version") || take(".address_size")) {
      next();
      return;
    }
    if (take(".target")) {
      do next();
      while (take(","));
      return;
    }
    if (is(".file")) {
      file();
      return;
    }
    if (take(".section")) {
      next();
      skip_braces();
      return;
    }
    while (is(".visible") || is(".weak") || is(".common") || (is(".extern") && is(".func", 1)))
      next();
    if (is(".entry") || is(".func"))
      function();
    else
      unit_.variables.push_back(variable_statement());
  }

  void file() {
    expect(".file");
    auto index = static_cast<size_t>(integer());
    if (unit_.files.size() <= index) unit_.files.resize(index + 1);
    unit_.files[index] = next().text;
    while (take(",")) integer();
  }

  // .loc file line column [, function_name label [+ n], inlined_at file line column]
  void loc() {
    expect(".loc");
    Loc l;
    l.file = static_cast<int>(integer());
    l.line = static_cast<int>(integer());
    int column = static_cast<int>(integer());
    while (take(",")) {
      if (take("function_name")) {
        next();
        if (take("+")) integer();
      } else {
        expect("inlined_at");
        int f = static_cast<int>(integer()), n = static_cast<int>(integer());
        int c = static_cast<int>(integer());
        auto it = latest_loc_.find({f, n, c});
        if (it != latest_loc_.end()) {
          l.parent = it->second;
        } else {
          unit_.locs.push_back({f, n, -1});
          l.parent = static_cast<int>(unit_.locs.size()) - 1;
        }
      }
    }
    unit_.locs.push_back(l);
    loc_ = static_cast<int>(unit_.locs.size()) - 1;
    latest_loc_[{l.file, l.line, column}] = loc_;
  }

  void function() {
    Function f;
    f.is_entry = next().text == ".entry";
    if (is("(")) f.results = parameters();
    f.name = next().text;
    if (is("(")) f.params = parameters();
    while (!is("{") && !is(";")) attribute(f);
    if (take(";")) {
      unit_.functions.push_back(std::move(f));
      return;
    }
    f.has_body = true;
    loc_ = -1;
    expect("{");
    int depth = 1;
    while (depth > 0) {
      if (peek().form == Token::Form::kEnd) fail("function " + f.name + " has no end");
      depth += statement(f.body);
    }
    f.body.pop_back();  // its own closing brace
    unit_.functions.push_back(std::move(f));
  }

  void attribute(Function& f) {
    if (take(".maxntid") || is(".reqntid")) {
      bool required = take(".reqntid");
      uint32_t n = static_cast<uint32_t>(integer());
      while (take(",")) n *= static_cast<uint32_t>(integer());
      (required ? f.required_threads : f.max_threads) = n;
    } else if (take(".minnctapersm")) {
      f.min_blocks = static_cast<uint32_t>(integer());
    } else if (take(".maxnreg")) {
      integer();
    } else if (!take(".noreturn")) {
      fail("unknown function attribute '" + peek().text + "'");
    }
  }

  std::vector<Variable> parameters() {
    std::vector<Variable> out;
    expect("(");
    while (!take(")")) {
      out.push_back(variable());
      if (!is(")")) expect(",");
    }
    return out;
  }

  Variable variable() {
    Variable v;
    while (peek().text[0] == '.' && peek().form == Token::Form::kName) {
      std::string q = next().text;
      if (q == ".extern")
        v.is_extern = true;
      else if (q == ".global")
        v.space = Space::kGlobal;
      else if (q == ".shared")
        v.space = Space::kShared;
      else if (q == ".local")
        v.space = Space::kLocal;
      else if (q == ".const")
        v.space = Space::kConst;
      else if (q == ".param" || q == ".reg")
        v.space = Space::kParam;
      else if (q == ".align")
        v.align = static_cast<uint32_t>(integer());
      else if (q == ".ptr") {  // `.ptr .global .align n` describes the pointee
        if (is(".global") || is(".shared") || is(".const") || is(".local")) next();
        if (take(".align")) integer();
      } else if (q != ".visible" && q != ".weak" && q != ".common") {
        v.type = type_named(q.substr(1));
        if (v.type == Type::kNone) fail("unknown declaration '" + q + "'");
      }
    }
    if (peek().form != Token::Form::kName) fail("expected a name before '" + peek().text + "'");
    v.name = next().text;
    while (take("[")) {
      v.count *= is("]") ? 0 : static_cast<uint64_t>(integer());
      expect("]");
    }
    v.align = std::max<uint32_t>(v.align, static_cast<uint32_t>(size_of(v.type)));
    return v;
  }

  Variable variable_statement() {
    Variable v = variable();
    if (take("=")) {
      bool braced = take("{");
      do {
        std::string minus = take("-") ? "-" : "";
        v.init.push_back(minus + next().text);
        if (is("(")) fail("an initialiser of this form is not supported");
      } while (take(","));
      if (braced) expect("}");
    }
    expect(";");
    return v;
  }

  // Appends what it reads; +1 for an opening brace, -1 for a closing one.
  int statement(std::vector<Statement>& out) {
    if (is(".loc")) {
      loc();
      return 0;
    }
    if (is(".file")) {
      file();
      return 0;
    }
    if (take(".pragma")) {
      while (!take(";")) next();
      return 0;
    }
    if (take(";")) return 0;
    Statement s;
    s.ptx_line = peek().line;
    s.loc = loc_;
    int depth = 0;
    if (take("{")) {
      s.form = Statement::Form::kOpen;
      depth = 1;
    } else if (take("}")) {
      s.form = Statement::Form::kClose;
      depth = -1;
    } else if (take(".reg")) {
      registers(s);
    } else if (peek().text[0] == '.') {
      s.form = Statement::Form::kVariable;
      s.variable = variable_statement();
    } else if (is(":", 1)) {
      s.form = Statement::Form::kLabel;
      s.opcode = next().text;
      expect(":");
      if (take(".branchtargets")) {
        s.form = Statement::Form::kTargets;
        do s.targets.push_back(next().text);
        while (take(","));
        expect(";");
      }
    } else {
      instruction(s);
    }
    out.push_back(std::move(s));
    return depth;
  }

  void registers(Statement& s) {
    s.form = Statement::Form::kRegister;
    s.type = type_named(next().text.substr(1));
    if (s.type == Type::kNone) fail("unknown register type");
    do {
      std::string name = next().text;
      int count = -1;
      if (take("<")) {
        count = static_cast<int>(integer());
        expect(">");
      }
      s.names.emplace_back(name, count);
    } while (take(","));
    expect(";");
  }

  void instruction(Statement& s) {
    if (take("@")) {
      s.guard_negated = take("!");
      s.guard = next().text;
    }
    if (peek().form != Token::Form::kName)
      fail("expected an instruction before '" + peek().text + "'");
    s.opcode = next().text;
    if (s.opcode == "call" || s.opcode.rfind("call.", 0) == 0) {
      call(s);
    } else if (!is(";")) {
      do s.operands.push_back(operand());
      while (take(","));
    }
    expect(";");
  }

  void call(Statement& s) {
    auto names = [&] {
      std::vector<std::string> out;
      expect("(");
      while (!take(")")) {
        out.push_back(next().text);
        take(",");
      }
      return out;
    };
    if (is("(")) {
      s.call_results = names();
      expect(",");
    }
    s.callee = next().text;
    if (take(",")) {
      if (!is("(")) fail("an indirect call is not supported");
      s.call_arguments = names();
      if (is(",")) fail("an indirect call is not supported");
    }
  }

  Operand operand() {
    Operand o;
    if (take("{")) {
      o.form = Operand::Form::kVector;
      do o.parts.push_back(operand());
      while (take(","));
      expect("}");
    } else if (take("[")) {
      o.form = Operand::Form::kAddress;
      if (peek().form == Token::Form::kName)
        o.name = next().text;
      else
        o.disp = integer();
      if (take("+"))
        o.disp += integer();
      else if (is("-"))
        o.disp += integer();
      expect("]");
    } else if (is("-") || peek().form == Token::Form::kNumber) {
      o.form = Operand::Form::kNumber;
      o.number = take("-") ? "-" : "";
      o.number += next().text;
    } else {
      o.negated = take("!");
      if (peek().form != Token::Form::kName)
        fail("expected an operand before '" + peek().text + "'");
      o.name = next().text;
      if (o.name == "_") o.form = Operand::Form::kSink;
      if (take("|")) o.pipe = next().text;
      if (take("+")) o.disp = integer();
    }
    return o;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Unit unit_;
  int loc_ = -1;
  std::map<std::tuple<int, int, int>, int> latest_loc_;
};

}  // namespace

Unit parse(const std::string& text) { return Parser(text).run(); }

Type type_named(const std::string& name) {
  static const std::map<std::string, Type> kTypes = {
      {"b8", Type::kB8},       {"u8", Type::kU8},         {"s8", Type::kS8},
      {"b16", Type::kB16},     {"u16", Type::kU16},       {"s16", Type::kS16},
      {"f16", Type::kF16},     {"bf16", Type::kBf16},     {"b32", Type::kB32},
      {"u32", Type::kU32},     {"s32", Type::kS32},       {"f32", Type::kF32},
      {"f16x2", Type::kF16x2}, {"bf16x2", Type::kBf16x2}, {"b64", Type::kB64},
      {"u64", Type::kU64},     {"s64", Type::kS64},       {"f64", Type::kF64},
      {"b128", Type::kB128},   {"pred", Type::kPred}};
  auto it = kTypes.find(name);
  return it == kTypes.end() ? Type::kNone : it->second;
}

int size_of(Type type) {
  switch (type) {
    case Type::kNone:
      return 0;
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
    case Type::kPred:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
      return 2;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    case Type::kB128:
      return 16;
    default:
      return 4;
  }
}

}  // namespace pf::ptxvm
