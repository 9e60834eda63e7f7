#include "emu/base/json_line.h"

#include <gtest/gtest.h>

namespace emu {
namespace {

TEST(JsonLine, ReadsAFlatObject) {
  auto fields = parse_json_line(" {\"cmd\": \"set\", \"power_cap_w\":1.5e3,\"on\" : true}\n");
  ASSERT_TRUE(fields) << fields.error().message;
  EXPECT_EQ(fields->at("cmd"), "set");
  EXPECT_EQ(fields->at("power_cap_w"), "1.5e3");
  EXPECT_EQ(fields->at("on"), "true");
  EXPECT_TRUE(parse_json_line("{}"));
  EXPECT_EQ(parse_json_line(R"({"a":"x\"\\\n"})")->at("a"), "x\"\\\n");
}

TEST(JsonLine, RefusesEverythingElse) {
  for (const char* bad :
       {"", "x", "[]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":{}}", "{\"a\":[1]}", "{\"a\":1,}",
        "{\"a\":1 \"b\":2}", "{\"a\":1}{", "{\"a\":\"x}", "{\"a\":1,\"a\":2}", "{a:1}",
        "{\"a\":\"\\u0041\"}", "{\"a\":\"\x01\"}"}) {
    EXPECT_FALSE(parse_json_line(bad)) << bad;
  }
  EXPECT_FALSE(parse_json_line(std::string(5000, ' ')));
}

TEST(JsonLine, WritesNestedValues) {
  JsonWriter j;
  j.open().field("s", "a\"b\n").field("i", -1).field("u", ~std::uint64_t{0}).field("b", true);
  j.field("d", 0.5).field("bad", 0.0 / 0.0).open_array("list");
  j.open().field("x", 1).close().open().close().close_array().open("o").close().close();
  EXPECT_EQ(j.text(),
            "{\"s\":\"a\\\"b\\u000a\",\"i\":-1,\"u\":18446744073709551615,\"b\":true,\"d\":0.5,"
            "\"bad\":null,\"list\":[{\"x\":1},{}],\"o\":{}}");
}

}  // namespace
}  // namespace emu
