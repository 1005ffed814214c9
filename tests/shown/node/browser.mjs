// node browser.mjs CHROMIUM walk.html explore.html: what a browser makes of the two pages, as one line of JSON.
import { pathToFileURL } from 'node:url';
import puppeteer from 'puppeteer-core';

const [executablePath, walk, explore] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

// A page as it opens, with what went wrong on it and what it asked the network for.
async function open(path, width) {
  const page = await browser.newPage(), wrong = [], asked = [];
  page.on('pageerror', error => wrong.push(String(error)));
  page.on('console', line => { if (line.type() === 'error') wrong.push(line.text()); });
  page.on('request', request => asked.push(request.url()));
  await page.setViewport({ width, height: 900 });
  await page.goto(pathToFileURL(path).href);
  return { page, wrong, asked };
}

// Boxes of formulas: how large each is, and where the parts of each fraction lie.
const laidOut = page => page.evaluate(() => {
  const box = at => { const b = at.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; };
  const seen = [...document.querySelectorAll('math')].filter(at => at.checkVisibility());
  return {
    formulas: seen.map(box),
    fractions: seen.flatMap(at => [...at.querySelectorAll('mfrac')].map(f => [f, ...f.children].map(box))),
    rows: seen.flatMap(at => [...at.querySelectorAll('mtable')].map(t => [...t.rows ?? t.children].map(box))),
    roots: seen.flatMap(at => [...at.querySelectorAll('msqrt')].map(r => [r, r.firstElementChild].map(box))),
    wide: document.documentElement.scrollWidth - innerWidth,
  };
});

// What is chosen, which walk is seen, and its words.
const state = page => page.evaluate(() => {
  const form = document.querySelector('.choose'), seen = [...document.querySelectorAll('[data-choice]')];
  const shown = seen.filter(at => at.checkVisibility());
  return {
    chosen: Object.fromEntries(new FormData(form)),
    focus: document.activeElement.name ?? null,
    seen: shown.map(at => at.dataset.choice),
    text: shown.map(at => at.textContent).join(''),
    live: shown.every(at => at.ariaLive === 'polite'),
  };
});

async function explored(width) {
  const { page, wrong, asked } = await open(explore, width);
  const first = await state(page), keys = [];
  const fields = await page.$$eval('.choose fieldset', all => all.map(at => at.querySelectorAll('input').length));
  await page.keyboard.press('Tab');
  for (const values of fields) {
    for (let i = 1; i < values; i++) {
      await page.keyboard.press('ArrowRight');
      keys.push(await state(page));
    }
    await page.keyboard.press('Tab');
  }
  return { first, keys, wrong, asked, wide: (await laidOut(page)).wide };
}

async function walked(width) {
  const { page, wrong, asked } = await open(walk, width);
  const found = { ...await laidOut(page), wrong, asked };
  const form = '.forms label:last-of-type', forms = await page.$$eval('.forms', all => all.length);
  const before = await page.$eval('.forms', at => [...at.querySelectorAll('.form')].map(f => f.checkVisibility()));
  await page.click(form);
  const after = await page.$eval('.forms', at => [...at.querySelectorAll('.form')].map(f => f.checkVisibility()));
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null);
  return { ...found, forms, before, after, paint };
}

const told = { walk: await walked(1200), phone: await walked(390), explore: await explored(1200), small: await explored(390) };
console.log(JSON.stringify(told));
await browser.close();
