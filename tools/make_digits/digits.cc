#include "tools/make_digits/digits.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace ddprun::tools {
namespace {

struct Point {
  double x = 0, y = 0;
};

// Points of a chain of quadratic curves in the unit square, x to the right and y down:
// on-curve, control, on-curve, control, on-curve ... An odd number.
using Stroke = std::vector<Point>;
using Shape = std::vector<Stroke>;

// A control point half-way makes a straight line.
Stroke Line(Point from, Point to) { return {from, {(from.x + to.x) / 2, (from.y + to.y) / 2}, to}; }

// How people write each digit.
const std::array<std::vector<Shape>, 10> kShapes = {{
    {{{{.5, 0}, {.9, 0}, {.9, .5}, {.9, 1}, {.5, 1}, {.1, 1}, {.1, .5}, {.1, 0}, {.5, 0}}},
     {{{.6, .05},
       {.1, .1},
       {.15, .6},
       {.2, 1},
       {.55, 1},
       {.95, .9},
       {.85, .4},
       {.7, 0},
       {.4, .1}}}},
    {{Line({.5, 0}, {.5, 1})},
     {Line({.3, .25}, {.55, 0}), Line({.55, 0}, {.5, 1})},
     {Line({.3, .2}, {.5, 0}), Line({.5, 0}, {.5, 1}), Line({.25, 1}, {.75, 1})}},
    {{{{.15, .25}, {.2, 0}, {.5, 0}, {.9, 0}, {.85, .3}, {.8, .55}, {.1, 1}},
      Line({.1, 1}, {.9, 1})},
     {{{.15, .2},
       {.3, 0},
       {.55, 0},
       {.85, .05},
       {.8, .35},
       {.7, .7},
       {.3, .9},
       {.05, 1},
       {.2, .8},
       {.4, .75},
       {.9, 1}}}},
    {{{{.15, .15}, {.3, 0}, {.5, 0}, {.85, .02}, {.8, .25}, {.75, .45}, {.4, .47}},
      {{.4, .47}, {.95, .5}, {.85, .78}, {.75, 1}, {.45, 1}, {.2, 1}, {.1, .82}}},
     {Line({.15, 0}, {.8, 0}),
      Line({.8, 0}, {.45, .4}),
      {{.45, .4}, {.95, .45}, {.85, .75}, {.75, 1}, {.4, 1}, {.2, 1}, {.1, .85}}}},
    {{Line({.6, 0}, {.1, .65}), Line({.1, .65}, {.9, .65}), Line({.65, .35}, {.65, 1})},
     {Line({.2, 0}, {.15, .5}), Line({.15, .5}, {.8, .5}), Line({.8, 0}, {.75, 1})}},
    {{Line({.85, 0}, {.25, 0}),
      Line({.25, 0}, {.2, .45}),
      {{.2, .45}, {.85, .3}, {.85, .68}, {.85, 1}, {.45, 1}, {.2, 1}, {.1, .85}}}},
    {{{{.75, 0},
       {.2, .2},
       {.15, .65},
       {.15, 1},
       {.5, 1},
       {.88, 1},
       {.85, .7},
       {.8, .45},
       {.5, .45},
       {.2, .45},
       {.15, .7}}},
     {{{.5, 0},
       {.15, .3},
       {.15, .7},
       {.2, 1},
       {.5, 1},
       {.8, .95},
       {.8, .75},
       {.7, .5},
       {.15, .75}}}},
    {{Line({.1, 0}, {.9, 0}), Line({.9, 0}, {.4, 1})},
     {Line({.1, .05}, {.9, 0}), {{.9, 0}, {.5, .5}, {.45, 1}}, Line({.35, .5}, {.8, .5})}},
    {{{{.5, .47},
       {.1, .4},
       {.2, .2},
       {.3, 0},
       {.5, 0},
       {.75, 0},
       {.8, .2},
       {.85, .4},
       {.5, .47},
       {.05, .58},
       {.12, .8},
       {.2, 1},
       {.5, 1},
       {.85, 1},
       {.88, .78},
       {.9, .55},
       {.5, .47}}}},
    {{{{.85, .3},
       {.8, .55},
       {.5, .55},
       {.12, .55},
       {.15, .28},
       {.2, 0},
       {.5, 0},
       {.85, 0},
       {.85, .3},
       {.85, .8},
       {.6, 1}}},
     {{{.8, .25},
       {.7, .55},
       {.45, .5},
       {.15, .45},
       {.2, .2},
       {.3, 0},
       {.55, 0},
       {.8, 0},
       {.8, .25}},
      Line({.8, .25}, {.75, 1})}},
}};

// From the unit square to pixels.
struct Affine {
  double xx = 1, xy = 0, yx = 0, yy = 1, x = 0, y = 0;
  Point operator()(Point p) const { return {xx * p.x + xy * p.y + x, yx * p.x + yy * p.y + y}; }
};

double DistanceSquared(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double length = dx * dx + dy * dy;
  double t = length > 0 ? ((p.x - a.x) * dx + (p.y - a.y) * dy) / length : 0;
  t = std::clamp(t, 0.0, 1.0);
  const double ex = a.x + t * dx - p.x, ey = a.y + t * dy - p.y;
  return ex * ex + ey * ey;
}

// Ink between 0 and 1 for each pixel; strokes only ever add.
class Canvas {
 public:
  void DrawSegment(Point a, Point b, double width) {
    const double reach = width / 2 + 1;
    const auto range = [reach](double p, double q) {
      return std::pair(std::clamp(static_cast<int>(std::min(p, q) - reach), 0, kImageSize - 1),
                       std::clamp(static_cast<int>(std::max(p, q) + reach), 0, kImageSize - 1));
    };
    const auto [left, right] = range(a.x, b.x);
    const auto [top, bottom] = range(a.y, b.y);
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        const double distance = std::sqrt(DistanceSquared({x + 0.5, y + 0.5}, a, b));
        double& ink = ink_[y * kImageSize + x];
        ink = std::max(ink, std::clamp(width / 2 + 0.5 - distance, 0.0, 1.0));
      }
    }
  }

  void DrawStroke(const Stroke& stroke, double width) {
    constexpr int kPieces = 6;
    for (size_t i = 0; i + 2 < stroke.size(); i += 2) {
      Point from = stroke[i];
      for (int piece = 1; piece <= kPieces; ++piece) {
        const double t = static_cast<double>(piece) / kPieces, s = 1 - t;
        const Point& a = stroke[i];
        const Point& b = stroke[i + 1];
        const Point& c = stroke[i + 2];
        const Point to = {s * s * a.x + 2 * s * t * b.x + t * t * c.x,
                          s * s * a.y + 2 * s * t * b.y + t * t * c.y};
        DrawSegment(from, to, width);
        from = to;
      }
    }
  }

  double ink(size_t pixel) const { return ink_[pixel]; }

 private:
  std::array<double, kImageSize * kImageSize> ink_{};
};

// How much the digits vary. Chosen so that the mean of a class tells little (nearest class mean
// stays below 85 %) while the strokes remain legible.
constexpr double kPointJitter = 0.035;
constexpr double kHalfRotation = 0.13;  // tangent of half the largest angle, 15 degrees
constexpr double kShear = 0.2;
constexpr double kShift = 2.2;   // pixels
constexpr double kNoise = 0.08;  // of full ink
constexpr double kStrayChance = 0.25;

}  // namespace

int DigitArtist::Pick(int bound) {
  return static_cast<int>(random_() % static_cast<uint64_t>(bound));
}

double DigitArtist::Uniform(double low, double high) {
  const double unit = static_cast<double>(random_() >> 11) / 9007199254740992.0;  // 2^53
  return low + (high - low) * unit;
}

// The sum of twelve uniforms: near enough, and exact everywhere.
double DigitArtist::Normal(double deviation) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += Uniform(0, 1);
  return sum * deviation;
}

Image DigitArtist::Draw(int digit) {
  const std::vector<Shape>& shapes = kShapes[digit];
  Shape shape = shapes[Pick(static_cast<int>(shapes.size()))];

  // A rotation by a rational parametrisation, so that no sine is needed.
  const double t = Uniform(-kHalfRotation, kHalfRotation);
  const double cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
  const double shear = Uniform(-kShear, kShear);
  const double width = Uniform(10, 16), height = Uniform(15, 20);
  Affine affine{.xx = width * cosine,
                .xy = height * (shear * cosine - sine),
                .yx = width * sine,
                .yy = height * (shear * sine + cosine)};
  const Point middle = affine({0.5, 0.5});
  affine.x = kImageSize / 2.0 - middle.x + Uniform(-kShift, kShift);
  affine.y = kImageSize / 2.0 - middle.y + Uniform(-kShift, kShift);

  Canvas canvas;
  const double pen = Uniform(1.3, 3.2);
  for (Stroke& stroke : shape) {
    for (Point& point : stroke) {
      point = affine({point.x + Normal(kPointJitter), point.y + Normal(kPointJitter)});
    }
    canvas.DrawStroke(stroke, pen);
  }
  if (Uniform(0, 1) < kStrayChance) {
    const Point from = {Uniform(0, kImageSize), Uniform(0, kImageSize)};
    canvas.DrawSegment(from, {from.x + Uniform(-5, 5), from.y + Uniform(-5, 5)}, Uniform(1, 2));
  }

  Image image;
  const double ink = Uniform(0.7, 1.0);
  for (size_t i = 0; i < image.size(); ++i) {
    const double level = std::clamp(ink * canvas.ink(i) + Normal(kNoise), 0.0, 1.0);
    image[i] = static_cast<uint8_t>(level * 255 + 0.5);
  }
  return image;
}

}  // namespace ddprun::tools
