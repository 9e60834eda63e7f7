#include "tools/trace/demux.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/log.h>
#include <libavutil/opt.h>
}

namespace tools {
namespace {

// A file in memory as libavformat reads it.
struct MemoryFile {
  std::span<const std::uint8_t> bytes;
  std::size_t position = 0;

  static int read(void* self, std::uint8_t* to, int count) {
    auto& file = *static_cast<MemoryFile*>(self);
    const std::size_t left = file.bytes.size() - file.position;
    if (left == 0) return AVERROR_EOF;
    const std::size_t take = std::min(left, static_cast<std::size_t>(std::max(count, 0)));
    std::memcpy(to, file.bytes.data() + file.position, take);
    file.position += take;
    return static_cast<int>(take);
  }
  static std::int64_t seek(void* self, std::int64_t offset, int whence) {
    auto& file = *static_cast<MemoryFile*>(self);
    const auto size = static_cast<std::int64_t>(file.bytes.size());
    if ((whence & AVSEEK_SIZE) != 0) return size;
    std::int64_t base = 0;
    if ((whence & ~AVSEEK_FORCE) == SEEK_CUR) base = static_cast<std::int64_t>(file.position);
    if ((whence & ~AVSEEK_FORCE) == SEEK_END) base = size;
    // Both are bounded by the file size, so the comparison must come before the sum can overflow.
    if (offset < -base || offset > size - base) return AVERROR(EINVAL);
    file.position = static_cast<std::size_t>(base + offset);
    return base + offset;
  }
};

struct FreeIo {
  void operator()(AVIOContext* io) const {
    av_freep(&io->buffer);
    avio_context_free(&io);
  }
};
struct FreeFormat {
  void operator()(AVFormatContext* format) const { avformat_close_input(&format); }
};
struct FreePacket {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};
struct FreeCodec {
  void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
};
struct CloseParser {
  void operator()(AVCodecParserContext* parser) const { av_parser_close(parser); }
};
using Io = std::unique_ptr<AVIOContext, FreeIo>;
using Format = std::unique_ptr<AVFormatContext, FreeFormat>;
using Packet = std::unique_ptr<AVPacket, FreePacket>;

std::string av_text(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(error, text, sizeof text);
  return text;
}

emu::Result<Io> open_io(MemoryFile& file, const std::string& name) {
  constexpr int kIoBufferBytes = 32 * 1024;
  auto* buffer = static_cast<std::uint8_t*>(av_malloc(kIoBufferBytes));
  if (buffer == nullptr) return emu::fail("{}: out of memory", name);
  Io io(avio_alloc_context(buffer, kIoBufferBytes, 0, &file, MemoryFile::read, nullptr,
                           MemoryFile::seek));
  if (!io) {
    av_free(buffer);
    return emu::fail("{}: out of memory", name);
  }
  return io;
}

emu::Result<Format> open_format(AVIOContext* io, const std::string& name,
                                const ClipLimits& limits) {
  AVFormatContext* raw = avformat_alloc_context();
  if (raw == nullptr) return emu::fail("{}: out of memory", name);
  raw->pb = io;
  raw->probesize = limits.probe_bytes;
  raw->format_probesize = static_cast<int>(limits.probe_bytes);
  raw->max_analyze_duration = limits.probe_us;
  raw->max_streams = 64;        // a broadcast multiplex has some twenty
  raw->max_probe_packets = 64;  // packets held back per stream while its codec is guessed
  // Parsing is done here, where a frame's bytes are limited; timestamps are taken as they stand.
  raw->flags |= AVFMT_FLAG_NOPARSE | AVFMT_FLAG_NOFILLIN | AVFMT_FLAG_CUSTOM_IO;
  av_opt_set(raw, "format_whitelist", "mpeg,mpegts,mpegvideo", 0);
  av_opt_set(raw, "protocol_whitelist", "file", 0);
  // An empty name: only the content decides, a lying suffix has no say. Frees `raw` on failure.
  const int error = avformat_open_input(&raw, "", nullptr, nullptr);
  if (error < 0) {
    return emu::fail("{}: not an MPEG-2 program, transport or elementary stream ({})", name,
                     av_text(error));
  }
  return Format(raw);
}

// Cuts the elementary stream into frames; the parser's memory is bounded by frame_bytes_max.
class FrameCutter {
 public:
  FrameCutter(const std::string& name, const ClipLimits& limits, const FrameSink& sink)
      : name_(name), limits_(limits), sink_(sink) {}

  emu::Result<void> open() {
    parser_.reset(av_parser_init(AV_CODEC_ID_MPEG2VIDEO));
    codec_.reset(avcodec_alloc_context3(nullptr));
    if (!parser_ || !codec_) return emu::fail("{}: libavcodec has no MPEG-2 parser", name_);
    codec_->codec_id = AV_CODEC_ID_MPEG2VIDEO;
    return {};
  }

  // `bytes` must be followed by AV_INPUT_BUFFER_PADDING_SIZE zeros, as packets are; empty = the
  // end.
  emu::Result<void> feed(std::span<const std::uint8_t> bytes) {
    do {
      std::uint8_t* frame = nullptr;
      int frame_bytes = 0;
      const int used =
          av_parser_parse2(parser_.get(), codec_.get(), &frame, &frame_bytes, bytes.data(),
                           static_cast<int>(bytes.size()), AV_NOPTS_VALUE, AV_NOPTS_VALUE, 0);
      if (used < 0) return emu::fail("{}: MPEG-2 parser: {}", name_, av_text(used));
      pending_ += static_cast<std::size_t>(used);
      bytes = bytes.subspan(static_cast<std::size_t>(used));
      if (frame_bytes > 0) {
        // A parser may give back some bytes that it looked ahead.
        pending_ -= std::min(pending_, static_cast<std::size_t>(frame_bytes));
        auto taken = sink_({frame, static_cast<std::size_t>(frame_bytes)});
        if (!taken) return taken;
      } else if (used == 0) {
        break;
      }
      if (pending_ > limits_.frame_bytes_max) {
        return emu::fail("{}: a picture of more than {} bytes", name_, limits_.frame_bytes_max);
      }
    } while (!bytes.empty());
    return {};
  }

 private:
  const std::string& name_;
  const ClipLimits& limits_;
  const FrameSink& sink_;
  std::unique_ptr<AVCodecParserContext, CloseParser> parser_;
  std::unique_ptr<AVCodecContext, FreeCodec> codec_;
  std::size_t pending_ = 0;  // bytes inside the parser
};

// Decoding times may not stand still or run back: then packets were lost, doubled or reordered.
// PES times have 33 bits and wrap once in 26.5 hours.
class DtsCheck {
 public:
  bool forward(std::int64_t dts) {
    constexpr std::uint64_t kMask = (std::uint64_t{1} << 33) - 1;
    if (dts == AV_NOPTS_VALUE) return true;
    const std::uint64_t now = static_cast<std::uint64_t>(dts) & kMask;
    const std::uint64_t step = last_ ? (now - *last_) & kMask : 1;
    last_ = now;
    return step != 0 && step < kMask / 2;
  }

 private:
  std::optional<std::uint64_t> last_;
};

// The video stream is found by its codec, not by being the first: in a program stream it shows up
// with its first packet. -1 if the packet belongs to something else.
bool is_mpeg2(const AVStream* stream) {
  return stream->codecpar->codec_id == AV_CODEC_ID_MPEG2VIDEO ||
         stream->codecpar->codec_id == AV_CODEC_ID_MPEG1VIDEO;  // told apart by sequence extension
}

std::string codecs_of(const AVFormatContext* format) {
  std::string text;
  for (unsigned i = 0; i < std::min(format->nb_streams, 8U); ++i) {
    text += i == 0 ? "" : ", ";
    text += avcodec_get_name(format->streams[i]->codecpar->codec_id);
  }
  return text.empty() ? "nothing" : text;
}

emu::Result<void> read_packets(AVFormatContext* format, const std::string& name,
                               FrameCutter& cutter) {
  const Packet packet(av_packet_alloc());
  if (!packet) return emu::fail("{}: out of memory", name);
  int video = -1;
  DtsCheck dts;
  while (true) {
    const int error = av_read_frame(format, packet.get());
    if (error == AVERROR_EOF) break;
    if (error < 0) return emu::fail("{}: {}", name, av_text(error));
    const int index = packet->stream_index;
    if (video < 0 && is_mpeg2(format->streams[index])) video = index;
    emu::Result<void> fed;
    if (index == video) {
      if ((packet->flags & AV_PKT_FLAG_CORRUPT) != 0) {
        fed = emu::fail("{}: damaged at byte {} (lost or faulty transport packets)", name,
                        packet->pos);
      } else if (!dts.forward(packet->dts)) {
        fed = emu::fail("{}: decoding times run back at byte {}", name, packet->pos);
      } else {
        fed = cutter.feed({packet->data, static_cast<std::size_t>(packet->size)});
      }
    }
    av_packet_unref(packet.get());
    if (!fed) return fed;
  }
  if (video < 0) {
    return emu::fail("{}: no MPEG-2 video in it, found {}", name, codecs_of(format));
  }
  return cutter.feed({});
}

void quiet(void*, int, const char*, va_list) {}

}  // namespace

emu::Result<std::string> demux(std::span<const std::uint8_t> file, const std::string& name,
                               const ClipLimits& limits, const FrameSink& sink) {
  // What the library says of a damaged file is many lines; ours is one.
  av_log_set_callback(quiet);
  MemoryFile memory{file};
  auto io = open_io(memory, name);
  if (!io) return std::unexpected(io.error());
  auto format = open_format(io->get(), name, limits);
  if (!format) return std::unexpected(format.error());
  FrameCutter cutter(name, limits, sink);
  if (auto opened = cutter.open(); !opened) return std::unexpected(opened.error());
  if (auto read = read_packets(format->get(), name, cutter); !read) {
    return std::unexpected(read.error());
  }
  return std::string((*format)->iformat->name);
}

}  // namespace tools
