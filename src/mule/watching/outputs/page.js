"use strict";
(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const $ = (id) => document.getElementById(id);
  const { times, tracks, every } = content;
  const hold = every / 2;
  const FURTHEST_STEPS = 1.5;
  const SAME_INSTANT = 0.0005;
  const COLOURS = { known: "#19e3ff", novel: "#ffd21a", idle: "#9aa4b2", unsure: "#ffffff" }, PLATE = "rgba(14,17,22,0.8)";

  const isCalibrated = content.threshold.score === "p_value";
  const lastTime = times.length ? times[times.length - 1] : 0;
  const length = content.source.duration_s || lastTime + hold || 1;

  // What was seen at each key time: [track, look] by track.
  const seenAt = times.map(() => []);
  for (const track of tracks) for (const look of track.looks) seenAt[look.at].push([track, look]);
  const trackOf = new Map(tracks.map((track) => [track.id, track]));
  const most = (track) => track.looks.reduce((top, look) => Math.max(top, look.novelty), 0);
  const ordered = [...tracks].sort((a, b) => most(b) - most(a) || a.id - b.id);

  const state = { time: 0, threshold: content.threshold.value, only: false, chosen: null, isPlaying: false };

  // ---- deciding

  const isNovel = (look) => !look.idle && look.novelty > state.threshold;
  // Calibrated novelty crowds below 1: there the scale counts the digits of one in ten, hundred, thousand known actors.
  const DIGITS = 3;
  const onScale = (novelty) => isCalibrated
    ? Math.min(-Math.log10(Math.max(1 - novelty, 1e-12)) / DIGITS, 1) : Math.min(Math.max(novelty, 0), 1);
  const fromScale = (place) => (isCalibrated ? 1 - 10 ** (-DIGITS * place) : place);
  const word = (look) => look.idle ? "idle" : isNovel(look) ? "novel"
    : look.does.length || !content.threshold.says_unsure ? "known" : "unsure";
  const everNovel = (track) => track.looks.some(isNovel);
  /** What is said of somebody who is never novel: known at some time, else unsure, else idle. */
  const mostSaid = (track) => ["known", "unsure"].find((said) => track.looks.some((look) => word(look) === said)) || "idle";

  function meaning() {
    if (state.threshold === content.threshold.value) return content.threshold.meaning;
    return isCalibrated
      ? `${percent(state.threshold)} of known actors pass`
      : `novel above ${state.threshold.toFixed(3)} by ${content.threshold.score}`;
  }

  // ---- times

  /** How many key times are at or before the time. */
  function numBefore(time) {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= time + SAME_INSTANT) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Who is shown where: the same rule as in the annotated video. */
  function shownAt(time) {
    const number = numBefore(time);
    const before = number ? number - 1 : null, after = number < times.length ? number : null;
    const shown = new Map();
    const later = new Map(after === null ? [] : seenAt[after].map(([track, look]) => [track.id, look]));
    if (after !== null && times[after] - time <= hold)
      for (const [track, look] of seenAt[after]) shown.set(track.id, { track, look, box: look.box });
    if (before !== null) {
      const gap = after === null ? Infinity : times[after] - times[before];
      for (const [track, look] of seenAt[before]) {
        const next = later.get(track.id);
        if (next && gap <= FURTHEST_STEPS * every) {
          const share = Math.min(Math.max((time - times[before]) / gap, 0), 1);
          shown.set(track.id, { track, look, box: look.box.map((value, i) => value + share * (next.box[i] - value)) });
        } else if (time - times[before] <= hold + SAME_INSTANT) shown.set(track.id, { track, look, box: look.box });
      }
    }
    return [...shown.values()].sort((a, b) => a.track.id - b.track.id);
  }

  /** The look that speaks at a time: the last one before it, else the first. */
  function lookAt(track, time) {
    let found = track.looks[0];
    for (const look of track.looks) if (times[look.at] <= time + SAME_INSTANT) found = look;
    return found;
  }

  // ---- words

  const percent = (share) => `${(100 * share).toFixed(share > 0.995 && share < 1 ? 2 : 1).replace(/\.0+$/, "")} %`;
    const clock = (time) => `${Math.floor(time / 60)}:${(time % 60).toFixed(1).padStart(4, "0")}`;
  const seconds = (time) => (time < 100 ? `${time.toFixed(1)} s` : clock(time));
  const plural = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function draw(tag, values) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
    return element;
  }

  // ---- video, or a clock of our own where there is none

  const video = $("video"), canvas = $("boxes");
  let hasVideo = false, lastTick = 0;

  function openVideo() {
    const source = content.video;
    if (!source) return showUnseen("This report has no video; boxes are shown on a plain background.");
    video.addEventListener("error", () =>
      showUnseen(`This browser cannot play ${source.name}. Everything else works without it.`));
    video.addEventListener("loadedmetadata", () => {
      hasVideo = true;
      $("unseen").hidden = true;
      video.currentTime = state.time;
      fit();
    });
    video.addEventListener("ended", () => setPlaying(false));
    video.addEventListener("seeked", paint);
    if (source.bytes) {
      const bytes = Uint8Array.from(atob(source.bytes), (letter) => letter.charCodeAt(0));
      video.src = URL.createObjectURL(new Blob([bytes], { type: source.kind }));
    } else video.src = source.src;
  }

  function showUnseen(text) {
    hasVideo = false;
    video.hidden = true;
    $("unseen").textContent = text;
    $("unseen").hidden = false;
  }

  function setPlaying(isPlaying) {
    if (isPlaying && state.time >= length - 0.05) seek(0);
    state.isPlaying = isPlaying;
    $("play").firstChild.textContent = isPlaying ? "❚❚" : "▶";
    $("play").setAttribute("aria-label", isPlaying ? "Pause" : "Play");
    if (hasVideo) isPlaying ? video.play().catch(() => setPlaying(false)) : video.pause();
    lastTick = performance.now();
    if (isPlaying) requestAnimationFrame(tick);
  }

  function tick(now) {
    if (!state.isPlaying) return;
    const time = hasVideo ? video.currentTime : state.time + (now - lastTick) / 1000;
    lastTick = now;
    setTime(Math.min(time, length));
    if (!hasVideo && time >= length) return setPlaying(false);
    requestAnimationFrame(tick);
  }

  function seek(time) {
    const within = Math.min(Math.max(time, 0), length);
    // Half a frame further: a player rounds times down to the frame before.
    if (hasVideo) video.currentTime = Math.min(within + 0.5 / content.rate, Math.max(length - 0.001, 0));
    setTime(within);
  }

  function setTime(time) {
    state.time = time;
    paint();
    showClock();
    showWhy();
  }

  // ---- boxes

  let view = { left: 0, top: 0, width: 1, height: 1 };

  function fit() {
    const stage = $("stage").getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(stage.width * ratio);
    canvas.height = Math.round(stage.height * ratio);
    const { rows, cols } = content.source;
    const scale = Math.min(stage.width / cols, stage.height / rows);
    view = { width: cols * scale, height: rows * scale, left: (stage.width - cols * scale) / 2, top: (stage.height - rows * scale) / 2 };
    paint();
  }

  const place = ([x1, y1, x2, y2]) =>
    [view.left + x1 * view.width, view.top + y1 * view.height, (x2 - x1) * view.width, (y2 - y1) * view.height];

  function visible() {
    return shownAt(state.time).filter(({ look }) => !state.only || isNovel(look));
  }

  function paint() {
    const pen = canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const actors = visible();
    const hasBoxes = content.video && content.video.boxes && hasVideo;
    const plates = [];
    for (const shown of actors) {
      const isChosen = shown.track.id === state.chosen;
      if (hasBoxes && !isChosen) continue;
      const [x, y, width, height] = place(shown.box);
      pen.lineJoin = "miter";
      pen.strokeStyle = PLATE;
      pen.lineWidth = isChosen ? 6 : 4;
      pen.strokeRect(x, y, width, height);
      pen.strokeStyle = COLOURS[word(shown.look)];
      pen.lineWidth = isChosen ? 3.5 : 2;
      pen.strokeRect(x, y, width, height);
      if (isChosen) paintContributor(pen, shown.look);
    }
    if (!hasBoxes) for (const shown of actors) paintPlate(pen, shown, plates);
    for (const head of document.querySelectorAll(".playhead")) head.style.left = `${(100 * state.time) / length}%`;
  }

  function paintContributor(pen, look) {
    const found = look.why && look.why.most;
    if (!found || !found.box) return;
    pen.setLineDash([5, 4]);
    for (const [colour, width] of [[PLATE, 4], ["#ffffff", 1.5]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.strokeRect(...place(found.box));
    }
    pen.setLineDash([]);
  }

  function paintPlate(pen, { track, look, box }, plates) {
    const does = look.does.slice(0, 3).map(([name, , , , probability]) => `${short(name)} ${Math.round(100 * probability)}%`);
    const said = word(look);
    const lines = said === "known" && does.length ? [`#${track.id} ${does[0]}`, ...does.slice(1)] : [`#${track.id} ${said}`, ...does];
    pen.font = "600 12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const [x, y] = place(box);
    const width = Math.max(...lines.map((line) => pen.measureText(line).width)) + 15, height = 17 * lines.length + 3;
    const left = Math.min(Math.max(x - 1, view.left), Math.max(view.left + view.width - width, view.left));
    const natural = y - height - 1 >= view.top ? y - height - 1 : Math.max(y, view.top) + 3;
    const tops = [natural, ...plates.map((other) => other.top - height), ...plates.map((other) => other.top + other.height)];
    const free = tops.filter((top) => top >= view.top && top + height <= view.top + view.height
      && !plates.some((other) => left < other.left + other.width && other.left < left + width && top < other.top + other.height && other.top < top + height));
    const cost = (each) => Math.max(natural - each, 2 * (each - natural));
    const top = free.length ? free.reduce((best, each) => (cost(each) < cost(best) ? each : best)) : natural;
    plates.push({ left, top, width, height });
    pen.fillStyle = PLATE;
    pen.fillRect(left, top, width, height);
    pen.fillStyle = COLOURS[said];
    pen.fillRect(left, top, 3, height);
    lines.forEach((line, number) => {
      pen.fillStyle = number ? "#f5f7fa" : COLOURS[said];
      pen.fillText(line, left + 9, top + 10 + 17 * number);
    });
  }

  const short = (name) => { const letters = [...name]; return letters.length > 28 ? `${letters.slice(0, 27).join("")}…` : name; };

  // ---- timeline

  const HIGH = 40, BAR = 3, SNAP_PX = 5;
  const laneOf = new Map();

  /** The key time nearest to a time, if it is near. */
  function snapped(time, within) {
    const number = numBefore(time);
    const near = [times[number - 1], times[number]].filter((each) => each !== undefined && Math.abs(each - time) <= within);
    return near.length ? near.reduce((a, b) => (Math.abs(b - time) < Math.abs(a - time) ? b : a)) : time;
  }

  /** Stretches of time in which an actor was seen without a pause. */
  function stretches(track) {
    const found = [];
    for (const look of track.looks) {
      const last = found[found.length - 1];
      if (last && look.at === last[last.length - 1].at + 1 && times[look.at] - times[look.at - 1] <= FURTHEST_STEPS * every) last.push(look);
      else found.push([look]);
    }
    return found;
  }

  function buildLanes() {
    for (const track of ordered) {
      const lane = make("div", "lane");
      lane.dataset.track = track.id;
      const who = make("button", "who");
      who.type = "button";
      who.append(make("b", "", `#${track.id}`), make("span"), make("span", "often"));
      who.addEventListener("click", () => { choose(track.id); seek(times[lookAt(track, state.time).at]); });
      const strip = make("div", "track");
      strip.addEventListener("click", (event) => {
        const area = strip.getBoundingClientRect();
        choose(track.id);
        seek(snapped(((event.clientX - area.left) / area.width) * length, (SNAP_PX / area.width) * length));
      });
      const picture = draw("svg", { viewBox: `0 0 1000 ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" });
      strip.append(picture, make("div", "playhead"));
      lane.append(who, strip);
      $("lanes").append(lane);
      laneOf.set(track.id, { lane, picture, who, parts: stretches(track) });
    }
    const step = [0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].find((each) => length / each <= 11) || 7200;
    for (let time = 0; time <= length + 1e-6; time += step) {
      const tickMark = make("span", "", length > 180 ? clock(time).replace(/\.0$/, "") : `${+time.toFixed(1)}`);
      tickMark.style.left = `${(100 * time) / length}%`;
      $("axis").append(tickMark);
    }
  }

  const across = (time) => (1000 * Math.min(Math.max(time, 0), length)) / length;
  const up = (novelty) => HIGH - BAR - 3 - (HIGH - BAR - 7) * onScale(novelty);

  function showLanes() {
    let numShown = 0;
    for (const track of ordered) {
      const { lane, picture, who, parts } = laneOf.get(track.id);
      const novel = everNovel(track);
      const said = novel ? "novel" : mostSaid(track);
      lane.className = `lane ${said}${track.id === state.chosen ? " chosen" : ""}`;
      lane.hidden = state.only && !novel;
      numShown += !lane.hidden;
      const count = track.looks.filter(isNovel).length;
      who.children[1].textContent = said;
      who.children[2].textContent = novel ? `${count}/${track.looks.length}` : "";
      who.setAttribute("aria-label", `Actor ${track.id}, ${novel ? `novel in ${count} of ${plural(track.looks.length, "look")}` : said}`);
      picture.replaceChildren();
      for (const part of parts) drawPart(picture, part);
      picture.append(draw("line", { class: "limit", x1: 0, x2: 1000, y1: up(state.threshold), y2: up(state.threshold) }));
    }
    $("nobody").hidden = numShown > 0;
    $("nobody").textContent = tracks.length ? "Nobody is novel at this threshold." : "Nobody was seen.";
  }

  function drawPart(picture, part) {
    let begin = 0;
    for (let at = 1; at <= part.length; at++) {
      if (at < part.length && word(part[at]) === word(part[begin])) continue;
      // A decision holds from its key time to the next; the first and last reach half a step out.
      const left = across(begin ? times[part[begin].at] : times[part[0].at] - hold);
      const right = across(at < part.length ? times[part[at].at] : times[part[at - 1].at] + hold);
      const kind = word(part[begin]);
      picture.append(draw("rect", { class: `run ${kind}`, x: left, width: right - left, y: 3, height: HIGH - BAR - 4 }));
      picture.append(draw("rect", { class: `bar ${kind}`, x: left, width: right - left, y: HIGH - BAR, height: BAR }));
      begin = at;
    }
    const points = part.map((look) => `${across(times[look.at]).toFixed(2)},${up(look.novelty).toFixed(2)}`);
    if (part.length === 1) points.push(`${(across(times[part[0].at]) + 0.1).toFixed(2)},${up(part[0].novelty).toFixed(2)}`);
    picture.append(draw("polyline", { class: "curve", points: points.join(" ") }));
  }

  // ---- counts, clock, thumbnails

  function showCounts() {
    const novel = tracks.filter(everNovel).length;
    const looks = tracks.reduce((sum, track) => sum + track.looks.length, 0);
    const novelLooks = tracks.reduce((sum, track) => sum + track.looks.filter(isNovel).length, 0);
    const number = make("b", "novel", String(novel));
    number.id = "numnovel";
    $("counts").replaceChildren(number, ` of ${plural(tracks.length, "actor")} novel`, make("br"));
    $("counts").append(make("span", "faint", `in ${novelLooks} of ${plural(looks, "look")}`));
    $("counts").dataset.novel = novel;
    $("counts").dataset.novelLooks = novelLooks;
  }

  function showClock() {
    $("clock").replaceChildren(clock(state.time), make("span", "faint", ` / ${clock(length)}`));
    $("clock").dataset.time = state.time;
  }

  const thumbs = [];

  function buildThumbnails() {
    $("gallery").hidden = !content.thumbnails.length;
    for (const { t, id, src } of content.thumbnails) {
      const track = trackOf.get(id);
      const look = track && track.looks.find((each) => times[each.at] === t);
      if (!look) continue;
      const button = make("button", "thumb");
      button.type = "button";
      const picture = make("img");
      picture.src = src;
      picture.alt = `Actor ${id} at ${seconds(t)}`;
      const line = make("span", "", `#${id}`);
      line.append(make("i", "", seconds(t)));
      button.append(picture, line);
      button.addEventListener("click", () => { choose(id); seek(t); });
      $("thumbnails").append(button);
      thumbs.push({ button, look });
    }
  }

  function showThumbnails() {
    for (const { button, look } of thumbs) {
      button.className = `thumb ${word(look)}`;
      button.hidden = state.only && !isNovel(look);
    }
  }

  // ---- why

  let explained = null;

  function showWhy() {
    const track = trackOf.get(state.chosen);
    const look = track && lookAt(track, state.time);
    const isThere = look && shownAt(state.time).some((shown) => shown.track === track);
    const key = look ? `${track.id} ${look.at} ${state.threshold} ${isThere}` : "none";
    if (key === explained) return;
    explained = key;
    const panel = $("why");
    panel.replaceChildren();
    if (!look) {
      panel.append(make("p", "faint", tracks.length ? "Select an actor to see why." : "Nobody was seen."));
      return;
    }
    const top = make("div", "whotop");
    top.append(make("h2", "", `Actor ${track.id}`), make("span", `badge ${word(look)}`, word(look)));
    panel.append(top, make("p", "faint", `${isThere ? "" : "not on screen now; seen "}at ${seconds(times[look.at])} · ${plural(look.looks, "look")} so far`));
    panel.append(make("p", "lead", sentence(look)), meter(look), make("p", "faint", `Threshold: ${meaning()}.`));
    if (state.threshold !== content.threshold.value)
      panel.append(make("p", "faint kept", "Moving the threshold changes who is novel. Actions and evidence stay as they were while watching."));
    addActions(panel, look);
    if (look.why) addReasons(panel, look.why);
    else panel.append(make("p", "faint", `This page has the reasons of the ${content.explained} most novel looks; moments.jsonl has all of them.`));
    addScores(panel, look);
  }

  const sentence = (look) => `${look.said[0].toUpperCase()}${look.said.slice(1)}.`;

  function meter(look) {
    const box = make("div", `meter ${word(look)}`), full = make("div", "full"), mark = make("div", "mark");
    full.style.width = percentOf(onScale(look.novelty));
    mark.style.left = percentOf(onScale(state.threshold));
    box.append(full, mark);
    return box;
  }

  const percentOf = (share) => `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(2)}%`;

  function bar(name, said, share, className) {
    const item = make("div", "item"), label = make("span", "", name), amount = make("div", "amount"), full = make("div", className);
    label.dir = "auto";
    label.title = name;
    full.style.width = percentOf(share);
    amount.append(full);
    item.append(label, make("em", "", said), amount);
    return item;
  }

  function addActions(panel, look) {
    panel.append(make("h3", "", "Known actions"));
    if (!look.does.length) panel.append(make("p", "faint", "No action is probable enough to be reported."));
    for (const [name, belief, disbelief, uncertainty, probability] of look.does) {
      const item = make("div", "item"), label = make("span", "", name), stack = make("div", "stack");
      label.dir = "auto";
      label.title = name;
      for (const [kind, share] of [["belief", belief], ["disbelief", disbelief]]) {
        const part = make("div", kind);
        part.style.width = percentOf(share);
        stack.append(part);
      }
      stack.title = `belief ${belief.toFixed(2)}, uncertainty ${uncertainty.toFixed(2)}, disbelief ${disbelief.toFixed(2)}`;
      item.append(label, make("em", "", percent(probability)), stack);
      panel.append(item);
    }
    if (look.does.length) panel.append(make("p", "faint", "Bars show belief from the left, disbelief from the right and uncertainty in between."));
  }

  function addReasons(panel, why) {
    const largest = Math.max(1e-9, ...[...why.for, ...why.against].map(([, amount]) => amount));
    const pair = make("div", "pair");
    for (const [title, list, kind] of [["Evidence for", why.for, "for"], ["Evidence against", why.against, "against"]]) {
      const column = make("div");
      column.append(make("h3", "", title));
      for (const [name, amount] of list) column.append(bar(name, amount.toFixed(1), amount / largest, kind));
      if (!list.length) column.append(make("p", "faint", "none"));
      pair.append(column);
    }
    panel.append(pair);
    if (why.most) {
      panel.append(make("h3", "", "Contributed most"));
      panel.append(bar(why.most.id === null ? why.most.name : `${why.most.name} #${why.most.id}`, percent(why.most.share), why.most.share, "share"));
      panel.append(make("p", "faint", `${why.most.kind}, ${why.most.by === "leave_one_out" ? "measured by leaving it out" : "measured by attention"}`));
    }
    if (why.like.length) panel.append(make("h3", "", "Nearest remembered actors"));
    const hasPictures = why.like.some((each) => each.picture !== null);
    for (const each of why.like) {
      const row = make("div", "like"), words = make("div");
      const picture = make(each.picture === null ? "div" : "img", each.picture === null ? "blank" : "");
      if (each.picture !== null) { picture.src = content.pictures[each.picture]; picture.alt = ""; }
      const does = make("p", "", each.does.join(", ") || "no action"), where = make("p", "faint", `${each.video}, ${seconds(each.t)} · distance ${each.far.toFixed(2)}`);
      does.dir = where.dir = "auto";
      words.append(does, where);
      if (hasPictures) row.append(picture);
      row.append(words);
      panel.append(row);
    }
  }

  function addScores(panel, look) {
    const more = make("details"), table = make("table");
    more.append(make("summary", "", "All scores"), table);
    const row = (cells, tag) => {
      const line = make("tr");
      cells.forEach((cell, at) => line.append(make(at && tag === "td" ? "td" : "th", "", cell)));
      table.append(line);
    };
    row(["", "now", "track so far"], "th");
    ["PE", "NE", "PNE", "Belief", "p-value"].forEach((name, at) => row([name, ...[look.now, look.sofar].map((scores) => (scores[at] === null ? "–" : scores[at].toFixed(3)))], "td"));
    panel.append(more);
  }

  // ---- acting

  function choose(id) {
    state.chosen = id;
    for (const [number, { lane }] of laneOf) lane.classList.toggle("chosen", number === id);
    paint();
    showWhy();
  }

  function showAll() {
    showLanes();
    showCounts();
    showThumbnails();
    paint();
    showWhy();
  }

  function setThreshold(value) {
    if (!Number.isFinite(value)) return;
    state.threshold = Math.min(Math.max(value, 0), 1);
    $("slider").value = onScale(state.threshold);
    $("exact").value = +state.threshold.toFixed(4);
    $("meaning").textContent = meaning();
    $("reset").hidden = state.threshold === content.threshold.value;
    showAll();
  }

  function setOnly(only) {
    state.only = only;
    $("only").checked = only;
    showAll();
  }

  function toggleTheme() {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === "light" ? "dark" : "light";
  }

  function stepKeyTime(direction) {
    const number = numBefore(state.time);
    if (direction > 0 && number < times.length) return seek(times[number]);
    const isOn = number && Math.abs(times[number - 1] - state.time) < 0.02;
    if (direction < 0 && number) seek(times[Math.max(number - (isOn ? 2 : 1), 0)]);
  }

  function stepActor(direction) {
    const ids = ordered.filter((track) => !laneOf.get(track.id).lane.hidden).map((track) => track.id);
    if (!ids.length) return;
    const at = ids.indexOf(state.chosen);
    const next = ids[at < 0 ? 0 : (at + direction + ids.length) % ids.length];
    choose(next);
    laneOf.get(next).lane.scrollIntoView({ block: "nearest" });
  }

  function nextNovel() {
    for (let step = 1; step <= times.length; step++) {
      const at = (numBefore(state.time) - 1 + step + times.length) % times.length;
      const found = seenAt[at].filter(([, look]) => isNovel(look)).sort((a, b) => b[1].novelty - a[1].novelty)[0];
      if (found) { choose(found[0].id); return seek(times[at]); }
    }
  }

  const KEYS = {
    " ": () => setPlaying(!state.isPlaying), k: () => setPlaying(!state.isPlaying),
    ArrowLeft: () => stepKeyTime(-1), ArrowRight: () => stepKeyTime(1),
    ArrowUp: () => stepActor(-1), ArrowDown: () => stepActor(1),
    n: nextNovel, f: () => setOnly(!state.only), t: toggleTheme,
    "[": () => setThreshold(fromScale(Math.max(onScale(state.threshold) - 0.01, 0))),
    "]": () => setThreshold(fromScale(Math.min(onScale(state.threshold) + 0.01, 1))),
  };

  function listen() {
    $("play").addEventListener("click", () => setPlaying(!state.isPlaying));
    $("only").addEventListener("change", () => setOnly($("only").checked));
    $("slider").addEventListener("input", () => setThreshold(fromScale($("slider").valueAsNumber)));
    $("exact").addEventListener("change", () => setThreshold($("exact").valueAsNumber));
    $("reset").addEventListener("click", () => setThreshold(content.threshold.value));
    $("theme").addEventListener("click", toggleTheme);
    canvas.addEventListener("click", (event) => {
      const area = canvas.getBoundingClientRect();
      const hit = visible().filter(({ box }) => {
        const [x, y, width, height] = place(box);
        const dx = event.clientX - area.left - x, dy = event.clientY - area.top - y;
        return dx >= 0 && dy >= 0 && dx <= width && dy <= height;
      }).sort((a, b) => (a.box[2] - a.box[0]) * (a.box[3] - a.box[1]) - (b.box[2] - b.box[0]) * (b.box[3] - b.box[1]))[0];
      hit ? choose(hit.track.id) : setPlaying(!state.isPlaying);
    });
    document.addEventListener("keydown", (event) => {
      const kind = event.target instanceof HTMLInputElement ? event.target.type : "";
      const isTyping = kind === "number" || (kind === "range" && /^(Arrow|Home|End|Page)/.test(event.key));
      const isPressing = event.key === " " && event.target instanceof HTMLButtonElement;
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping || isPressing) return;
      const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    new ResizeObserver(fit).observe($("stage"));
  }

  function begin() {
    document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
    $("title").textContent = content.source.video;
    $("title").title = content.source.address;
    $("facts").textContent = `${content.source.duration_s === null ? "live, " : ""}${clock(length)} · ${plural(times.length, "key time")} · ${content.source.cols} × ${content.source.rows}`;
    $("model").textContent = `Watched with ${content.model.name} (${content.model.fingerprint}), ${content.threshold.name}. "mule models ${content.model.name}" shows what it knows, and how well.`;
    buildLanes();
    buildThumbnails();
    listen();
    openVideo();
    setThreshold(state.threshold);
    const first = ordered.find(everNovel) || ordered[0];
    if (first) {
      choose(first.id);
      seek(times[first.looks.reduce((best, look) => (look.novelty > best.novelty ? look : best)).at]);
    } else setTime(0);
    const asked = /^#t=(\d+(?:\.\d+)?)$/.exec(location.hash);
    if (asked) seek(Math.min(Number(asked[1]), length));
    document.documentElement.dataset.ready = "yes";
  }

  begin();
})();
