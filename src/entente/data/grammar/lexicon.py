"""The words of the embedded corpus, written for it: French, English, and the classes that say what goes with what.

A noun belongs to one section and may carry further tags; verbs and adjectives name the tags they take. No French form is shared
by two meanings (no livre, femme, temps, avocat), so that the French determines the English.
"""

from typing import NamedTuple

from entente.data.grammar.morphology import english_past, english_plural, french_plural


class Noun(NamedTuple):
    """A noun; countable says whether it has a plural and takes un / une (else it is a mass noun)."""

    fr: str
    gender: str
    en: str
    section: str
    countable: bool
    fr_plural: str
    en_plural: str

    @property
    def person(self) -> bool:
        return self.section in ("kin", "role")


class Adjective(NamedTuple):
    fr: str
    en: str
    place: str  # pre, post, pred (after être only)


class Verb(NamedTuple):
    """fr and en may be phrases (avoir faim, look for); frame names the construction, tags the classes of the object."""

    fr: str
    en: str
    en_past: str
    aspect: str  # action, state or punctual (no progressive, no imparfait)
    frame: str
    objects: tuple[Noun, ...]
    people: bool  # may take a person as object

    @property
    def reflexive(self) -> bool:
        return self.fr.startswith(("se ", "s'"))

    @property
    def moves(self) -> bool:
        """Whether the passé composé has être."""
        return self.reflexive or self.fr.split()[0] in ETRE_VERBS


ETRE_VERBS = frozenset("aller venir partir arriver entrer sortir rester tomber monter descendre rentrer naître mourir revenir "
                       "devenir retourner".split())  # fmt: skip

# section: French/gender/English; ~ before a noun: no plural (mass)
NOUNS = """
kin: père/m/father, mère/f/mother, frère/m/brother, sœur/f/sister, oncle/m/uncle, tante/f/aunt, cousin/m/cousin,
  cousine/f/cousin, grand-père/m/grandfather, grand-mère/f/grandmother, neveu/m/nephew, nièce/f/niece, ami/m/friend,
  amie/f/friend, collègue/m/colleague, voisin/m/neighbor, voisine/f/neighbor
role: médecin/m/doctor, boulanger/m/baker, professeur/m/professor, facteur/m/mail carrier, boucher/m/butcher,
  pompier/m/firefighter, policier/m/police officer, journaliste/m/journalist, musicien/m/musician, peintre/m/painter,
  chanteur/m/singer, pharmacien/m/pharmacist, coiffeur/m/hairdresser, mécanicien/m/mechanic, fermier/m/farmer,
  pilote/m/pilot, soldat/m/soldier, ingénieur/m/engineer, architecte/m/architect, roi/m/king, prince/m/prince,
  étudiant/m/student, garçon/m/boy, homme/m/man, enfant/m/child, touriste/m/tourist, dentiste/m/dentist,
  écrivain/m/writer, cuisinier/m/cook, serveur/m/waiter, client/m/customer, directeur/m/director, maire/m/mayor,
  acteur/m/actor, poète/m/poet, élève/m/pupil, photographe/m/photographer, vendeur/m/salesman, infirmière/f/nurse,
  actrice/f/actress, danseuse/f/dancer, reine/f/queen, princesse/f/princess, secrétaire/f/secretary, dame/f/lady,
  caissière/f/cashier, couturière/f/seamstress, serveuse/f/waitress, vendeuse/f/saleswoman, bibliothécaire/f/librarian,
  étudiante/f/student, directrice/f/director
pet: chat/m/cat, chien/m/dog, cheval/m/horse, lapin/m/rabbit, canard/m/duck, poule/f/hen, vache/f/cow, mouton/m/sheep,
  chèvre/f/goat, cochon/m/pig, âne/m/donkey, tortue/f/turtle
wild: oiseau/m/bird, lion/m/lion, tigre/m/tiger, éléphant/m/elephant, singe/m/monkey, ours/m/bear, loup/m/wolf,
  renard/m/fox, hibou/m/owl, hérisson/m/hedgehog, grenouille/f/frog, papillon/m/butterfly, serpent/m/snake,
  girafe/f/giraffe, écureuil/m/squirrel
food: pomme/f/apple, poire/f/pear, banane/f/banana, orange/f/orange, cerise/f/cherry, fraise/f/strawberry, citron/m/lemon,
  tomate/f/tomato, carotte/f/carrot, oignon/m/onion, haricot/m/bean, champignon/m/mushroom, œuf/m/egg, gâteau/m/cake,
  tarte/f/pie, croissant/m/croissant, biscuit/m/cookie, bonbon/m/candy, crêpe/f/pancake, sandwich/m/sandwich,
  omelette/f/omelet, pizza/f/pizza, saucisse/f/sausage, légume/m/vegetable, ~pain/m/bread, ~fromage/m/cheese,
  ~beurre/m/butter, ~riz/m/rice, ~viande/f/meat, ~poisson/m/fish, ~poulet/m/chicken, ~jambon/m/ham, ~soupe/f/soup,
  ~salade/f/salad, ~chocolat/m/chocolate, ~miel/m/honey, ~confiture/f/jam
drink: ~eau/f/water, ~lait/m/milk, ~café/m/coffee, ~thé/m/tea, ~vin/m/wine, ~bière/f/beer, ~jus/m/juice,
  ~limonade/f/lemonade, ~cidre/m/cider
clothes: chemise/f/shirt, robe/f/dress, chapeau/m/hat, manteau/m/coat, jupe/f/skirt, veste/f/jacket, pull/m/sweater,
  écharpe/f/scarf, cravate/f/tie, ceinture/f/belt, casquette/f/cap, imperméable/m/raincoat, uniforme/m/uniform,
  costume/m/suit, gant/m/glove, botte/f/boot, chaussure/f/shoe, chaussette/f/sock
vehicle: voiture/f/car, camion/m/truck, vélo/m/bicycle, moto/f/motorcycle, bateau/m/boat, avion/m/plane, train/m/train,
  bus/m/bus, taxi/m/taxi, métro/m/subway, tracteur/m/tractor
furniture: table/f/table, chaise/f/chair, armoire/f/wardrobe, canapé/m/sofa, fauteuil/m/armchair, étagère/f/shelf,
  lampe/f/lamp, tapis/m/rug, miroir/m/mirror, rideau/m/curtain, horloge/f/clock, coussin/m/cushion, tableau/m/painting,
  tiroir/m/drawer
thing: clé/f/key, parapluie/m/umbrella, sac/m/bag, passeport/m/passport, téléphone/m/phone, portefeuille/m/wallet,
  stylo/m/pen, crayon/m/pencil, cahier/m/notebook, billet/m/ticket, bague/f/ring, collier/m/necklace,
  enveloppe/f/envelope, photo/f/photo, cadeau/m/gift, ballon/m/ball, jouet/m/toy, poupée/f/doll, couteau/m/knife,
  valise/f/suitcase, boîte/f/box, panier/m/basket, marteau/m/hammer, fourchette/f/fork, cuillère/f/spoon,
  bracelet/m/bracelet, cerf-volant/m/kite, peigne/m/comb
dish: verre/m/glass, assiette/f/plate, tasse/f/cup, vase/m/vase, bouteille/f/bottle, bol/m/bowl, casserole/f/saucepan
device: ordinateur/m/computer, radio/f/radio, télévision/f/television, imprimante/f/printer, machine/f/machine,
  moteur/m/engine, four/m/oven, réfrigérateur/m/refrigerator, robot/m/robot, réveil/m/alarm clock
text: journal/m/newspaper, lettre/f/letter, roman/m/novel, article/m/article, magazine/m/magazine, poème/m/poem,
  message/m/message, rapport/m/report, conte/m/tale, recette/f/recipe, dictionnaire/m/dictionary, texte/m/text
show: film/m/movie, match/m/match, spectacle/m/show, concert/m/concert, opéra/m/opera, documentaire/m/documentary
song: chanson/f/song, symphonie/f/symphony, mélodie/f/melody
idea: question/f/question, problème/m/problem, réponse/f/answer, leçon/f/lesson, exercice/m/exercise, phrase/f/sentence,
  projet/m/project, idée/f/idea
building: maison/f/house, école/f/school, musée/m/museum, gare/f/station, église/f/church, hôpital/m/hospital,
  bibliothèque/f/library, restaurant/m/restaurant, théâtre/m/theater, cinéma/m/movie theater, banque/f/bank,
  boulangerie/f/bakery, pharmacie/f/pharmacy, hôtel/m/hotel, château/m/castle, usine/f/factory, aéroport/m/airport,
  stade/m/stadium, université/f/university, magasin/m/store, supermarché/m/supermarket, appartement/m/apartment,
  cathédrale/f/cathedral, palais/m/palace, piscine/f/pool, pont/m/bridge, immeuble/m/apartment building
room: cuisine/f/kitchen, chambre/f/bedroom, salon/m/living room, garage/m/garage, grenier/m/attic, balcon/m/balcony,
  couloir/m/hallway, terrasse/f/terrace
outdoors: jardin/m/garden, parc/m/park, plage/f/beach, forêt/f/forest, rue/f/street, village/m/village, ville/f/city,
  port/m/port, zoo/m/zoo, montagne/f/mountain, rivière/f/river, lac/m/lake, île/f/island, colline/f/hill, champ/m/field,
  marché/m/market
plant: arbre/m/tree, fleur/f/flower, rose/f/rose, tulipe/f/tulip, rosier/m/rosebush, pommier/m/apple tree, sapin/m/fir
  tree, buisson/m/bush
opening: fenêtre/f/window, portail/m/gate
art: portrait/m/portrait, paysage/m/landscape
instrument: piano/m/piano, guitare/f/guitar, violon/m/violin, flûte/f/flute, trompette/f/trumpet, harpe/f/harp,
  accordéon/m/accordion, clarinette/f/clarinet
sport: ~football/m/soccer, ~tennis/m/tennis, ~rugby/m/rugby, ~golf/m/golf, ~hockey/m/hockey, ~basket/m/basketball
language: ~français/m/French, ~anglais/m/English, ~espagnol/m/Spanish, ~italien/m/Italian, ~allemand/m/German,
  ~japonais/m/Japanese, ~portugais/m/Portuguese, ~russe/m/Russian, ~chinois/m/Chinese, ~arabe/m/Arabic
subject: ~chimie/f/chemistry, ~biologie/f/biology, ~géographie/f/geography, ~philosophie/f/philosophy,
  ~littérature/f/literature, ~économie/f/economics, ~informatique/f/computer science, ~musique/f/music,
  ~géologie/f/geology
"""

# tags that cut across the sections; a section's name is itself a tag
TAGS = {
    "meal": "gâteau tarte soupe salade omelette pizza crêpe sandwich riz viande poisson poulet",
    "cuttable": "pain gâteau tarte fromage pizza tomate oignon carotte citron viande jambon pomme",
    "writable": "lettre message article rapport roman poème conte phrase texte recette",
    "sendable": "lettre message photo cadeau rapport poème",
    "driven": "voiture camion bus taxi tracteur moto",
    "transport": "train bus taxi métro avion",
    "openable": "fenêtre portail tiroir boîte valise enveloppe bouteille armoire sac parapluie",
    "fragile": "verre assiette tasse vase bol miroir lampe fenêtre bouteille jouet",
    "repairable": "voiture camion vélo moto bateau tracteur radio télévision ordinateur imprimante machine moteur horloge"
    " réveil robot"
    " jouet chaise armoire portail",
    "switch": "lampe radio télévision ordinateur four imprimante machine robot",
    "usable": "ordinateur téléphone imprimante machine four marteau couteau dictionnaire peigne crayon stylo",
    "washable": "chemise robe manteau jupe pull écharpe chaussette gant voiture camion vélo verre assiette tasse bol"
    " bouteille casserole"
    " fenêtre rideau",
    "losable": "clé parapluie sac passeport téléphone portefeuille stylo crayon cahier billet bague collier bracelet gant"
    " chapeau écharpe"
    " valise ballon peigne",
    "hideable": "clé cadeau lettre bague collier photo boîte poupée bonbon bouteille chocolat portefeuille",
    "portable": "clé sac téléphone stylo crayon cahier photo cadeau jouet poupée couteau valise boîte panier marteau"
    " fourchette cuillère"
    " verre assiette tasse vase bouteille bol casserole lettre journal magazine chapeau roman",
    "carried": "valise boîte panier sac chaise table bouteille vase ordinateur coussin casserole",
    "bought": "voiture vélo moto bateau table chaise armoire canapé fauteuil lampe tapis miroir rideau coussin tableau"
    " horloge"
    " parapluie sac téléphone stylo cahier billet bague collier cadeau jouet poupée valise panier marteau couteau "
    "bracelet vase casserole"
    " ordinateur radio télévision imprimante four réfrigérateur journal magazine roman dictionnaire chemise robe "
    "chapeau manteau jupe"
    " veste pull écharpe cravate ceinture casquette imperméable costume botte chaussure maison appartement piano "
    "guitare violon flûte"
    " trompette harpe accordéon clarinette fleur rose tulipe cerf-volant réveil fourchette cuillère verre assiette "
    "tasse bol gant"
    " peigne enveloppe",
    "given": "pomme orange gâteau bonbon biscuit clé parapluie stylo cahier photo cadeau jouet poupée bague collier fleur"
    " rose roman"
    " magazine poème lettre ballon tulipe bracelet cerf-volant pain chocolat eau thé enveloppe",
    "lent": "cerf-volant voiture vélo moto parapluie stylo crayon cahier couteau marteau valise guitare violon roman"
    " dictionnaire magazine manteau"
    " écharpe ordinateur téléphone ballon accordéon",
    "shown": "photo lettre tableau bague collier passeport robe maison voiture jardin poème cadeau chambre billet bracelet",
    "home": "maison appartement chambre immeuble château hôtel",
    "built": "maison pont bateau piscine immeuble hôtel école stade",
    "rented": "voiture vélo maison appartement bateau chambre camion moto",
    "sight": "musée cathédrale château palais zoo église port village île jardin",
    "cleaned": "cuisine chambre salon garage balcon maison appartement piscine four réfrigérateur table miroir tapis"
    " couloir terrasse"
    " grenier armoire",
    "painted": "portrait paysage fleur montagne rivière lac forêt port village arbre maison pont",
    "drawn": "portrait paysage arbre maison chat cheval oiseau lion éléphant château bateau papillon girafe robot hibou"
    " hérisson singe grenouille renard loup ours tigre serpent",
    "photographed": "paysage montagne lac île oiseau château cathédrale papillon pont lion éléphant girafe palais colline"
    " singe renard"
    " écureuil hibou hérisson grenouille",
    "picked": "fleur rose tulipe pomme poire cerise fraise orange citron tomate champignon",
    "watered": "fleur rose tulipe rosier jardin arbre pommier buisson tomate",
    "planted": "arbre rosier pommier sapin tulipe tomate carotte oignon rose buisson",
    "seen": "opéra maison église château pont montagne lac île rivière oiseau chat chien cheval vache éléphant lion singe"
    " renard serpent"
    " hérisson hibou voiture bateau avion train papillon loup ours film tableau jardin écureuil grenouille tortue "
    "girafe tigre colline",
    "sighted": "montagne lac île rivière château pont cathédrale oiseau papillon jardin tableau paysage",
    "container": "tiroir boîte valise sac panier armoire",
    "surface": "table chaise étagère fauteuil canapé lettre tapis",
    "filled": "verre bouteille bol panier boîte valise tasse sac vase",
    "thrown": "boîte bouteille journal enveloppe magazine jouet cahier",
    "chosen": "robe cravate chapeau cadeau film roman bague manteau chemise tapis gâteau hôtel restaurant canapé fleur"
    " chanson leçon"
    " collier tableau projet",
    "work": "lettre roman article rapport exercice poème projet tableau gâteau",
    "begun": "roman article rapport exercice leçon projet tableau lettre",
    "understood": "question problème réponse leçon exercice phrase poème texte article projet idée film",
    "explained": "problème question leçon exercice phrase projet idée texte",
    "topic": "opéra réponse film match projet problème roman spectacle concert idée",
    "feared": "serpent loup lion tigre ours chien",
    "needed": "parapluie manteau voiture stylo téléphone clé dictionnaire valise ordinateur marteau couteau passeport lampe"
    " vélo",
    "dreamed": "maison château île plage voiture bateau cheval",
    "likedplural": "pomme poire banane orange cerise fraise tomate carotte champignon œuf gâteau tarte croissant biscuit"
    " bonbon crêpe"
    " légume oignon haricot saucisse chat chien cheval oiseau tigre papillon lapin fleur rose tulipe roman poème film "
    "conte concert musée"
    " train avion château opéra documentaire",
    "likedmass": "pain fromage beurre riz viande poisson poulet jambon soupe salade chocolat miel confiture lait café thé"
    " vin bière jus"
    " limonade cidre football tennis rugby golf hockey basket chimie biologie géographie philosophie littérature musique",
    "priced": "robe chapeau lampe sac bague manteau tapis valise chemise écharpe jupe veste pull cravate collier radio bracelet"
    " chaise miroir casquette ceinture imperméable horloge réveil jouet dictionnaire",
    "owned": "voiture vélo moto bateau chat chien cheval lapin tortue maison jardin guitare piano violon ordinateur"
    " téléphone radio"
    " télévision parapluie sac valise tracteur robot camion imprimante dictionnaire",
    "family": "frère sœur oncle tante cousin cousine ami amie voisin voisine neveu nièce collègue",
    "station": "usine gare aéroport restaurant bibliothèque hôtel école cinéma théâtre musée banque piscine pharmacie"
    " université",
    "destination": "usine gare école musée église hôpital bibliothèque restaurant théâtre cinéma banque boulangerie pharmacie"
    " plage piscine"
    " aéroport marché stade université supermarché port zoo",
    "resting": "jardin parc salon chambre train hôtel",
    "worn": "chemise robe chapeau manteau jupe veste pull écharpe cravate ceinture casquette imperméable uniforme costume"
    " gant botte"
    " chaussure chaussette bague collier bracelet",
    "watched": "opéra film match spectacle documentaire oiseau télévision papillon écureuil",
    "heard": "chanson musique radio concert symphonie mélodie",
    "sung": "chanson mélodie",
}

# place French/English: the tags it goes with; two Englishes of one adjective have tags that share no noun
ADJECTIVES = """
pre grand/tall: kin role
pre petit/short: kin role
pre jeune/young: kin role pet wild
pre vieux/old: kin role pet wild building vehicle
pre grand/big: building outdoors furniture dish roomy plant pet valise boîte panier
pre petit/small: building outdoors furniture dish room plant pet wild vehicle thing
pre beau/beautiful: building garden clothes furniture plant art instrument song pet bague collier bracelet
pre joli/pretty: garden clothes dish plant room bague collier bracelet
pre nouveau/new: clothes vehicle furniture text show song device thing dish instrument
pre bon/good: food drink text show idea restaurant hôtel médecin professeur
pre mauvais/bad: text show idea restaurant hôtel
pre long/long: film documentaire lettre roman article rapport message robe jupe rue rivière poème
pre gros/fat: pet
post intelligent/intelligent: kin role
post drôle/funny: kin role film conte
post sérieux/serious: kin role
post timide/shy: kin role
post poli/polite: kin role
post patient/patient: kin role
post courageux/brave: kin role
post paresseux/lazy: kin role chat
post généreux/generous: kin role
post honnête/honest: kin role
post curieux/curious: kin role chat
post sympathique/friendly: kin role
post célèbre/famous: role building film roman poème symphonie opéra portrait
post riche/rich: kin role
post calme/calm: kin role
post élégant/elegant: kin role clothes
post gentil/kind: kin role
post prudent/careful: kin role
post ambitieux/ambitious: kin role
post discret/discreet: kin role
post modeste/modest: kin role
post créatif/creative: kin role
post optimiste/optimistic: kin role
post sincère/sincere: kin role
post agréable/pleasant: kin role garden
post naïf/naive: kin role
post distrait/absent-minded: kin role
post aimable/kindly: role
post autoritaire/bossy: kin directeur professeur
post fidèle/loyal: kin chien
pred content/pleased: kin role
pred heureux/happy: kin role
pred triste/sad: kin role
pred fatigué/tired: kin role
pred malade/sick: kin role
pred inquiet/worried: kin role
pred fier/proud: kin role
pred jaloux/jealous: kin role
pred occupé/busy: kin role
pred seul/alone: kin role
pred prêt/ready: kin role
pred nerveux/nervous: kin role
pred surpris/surprised: kin role
pred déçu/disappointed: kin role
pred furieux/furious: kin role
post rouge/red: coloured pomme fleur tulipe rose ballon
post bleu/blue: coloured stylo ballon
post vert/green: coloured pomme stylo
post noir/black: coloured chat chien cheval stylo
post blanc/white: coloured chat chien cheval lapin fleur tulipe rose maison
post gris/gray: coloured chat âne
post jaune/yellow: coloured fleur tulipe rose crayon
post violet/purple: coloured fleur tulipe
post rapide/fast: vehicle cheval
post lent/slow: vehicle tortue
post confortable/comfortable: clothable canapé fauteuil chaise voiture train chambre salon maison appartement hôtel
post moderne/modern: vehicle device furniture hôtel hôpital aéroport gare appartement université immeuble stade usine
post cher/expensive: clothes voiture moto bateau furniture bague collier bracelet device restaurant hôtel sac valise instrument
post bruyant/noisy: moto camion tracteur machine moteur rue réfrigérateur ville marché
pred solide/sturdy: furniture valise boîte panier sac pont
post rond/round: table tapis miroir horloge coussin boîte fenêtre
pred vide/empty: container verre bouteille bol tasse assiette
pred propre/clean: clothable dish room chambre
pred sale/dirty: clothable dish vehicle fenêtre
post fragile/fragile: verre assiette tasse vase miroir lampe bol
post chaud/warm: manteau pull écharpe chaussette veste gant
pred sec/dry: clothable écharpe gant coussin tapis
post lourd/heavy: valise boîte sac panier table armoire canapé machine ordinateur marteau accordéon
post léger/light: valise sac manteau vélo panier
pred utile/useful: device couteau marteau dictionnaire vélo sac cahier parapluie
pred pratique/practical: device sac vélo panier couteau valise parapluie
pred fiable/reliable: vehicle device
post intéressant/interesting: text show idea musée
post ennuyeux/boring: roman article rapport film spectacle documentaire leçon match
post court/short: film documentaire lettre roman article rapport message robe jupe conte poème
post amusant/amusing: conte film spectacle roman chanson
post étrange/strange: conte film poème question réponse idée message portrait
post passionnant/exciting: roman film match conte documentaire
post facile/easy: question problème leçon exercice texte recette
post difficile/difficult: question problème leçon exercice texte phrase
post simple/simple: question problème exercice phrase recette
post important/important: question lettre message projet match
post compliqué/complicated: question problème projet exercice recette
post utile/useful: idée leçon
post original/original: idée projet tableau cadeau
post magnifique/magnificent: building garden arbre paysage tableau symphonie spectacle
post immense/huge: stade palais château aéroport forêt parc arbre ville gare cathédrale hôtel
post calme/quiet: garden rue village hôtel bibliothèque
post tranquille/peaceful: garden village rue
post sombre/dark: room chambre forêt rue
post clair/bright: room appartement
post moderne/modern: cuisine salon
post dangereux/dangerous: lion tigre ours loup serpent rue
post profond/deep: lac rivière piscine
post large/wide: rue rivière pont couloir terrasse
post haut/high: montagne colline pont
post délicieux/delicious: food drink
post frais/fresh: pain poisson œuf légume tomate carotte salade fraise cerise fromage viande
post sucré/sweet: orange cerise fraise poire gâteau limonade jus
post mûr/ripe: pomme poire banane orange cerise fraise tomate citron
post salé/salty: soupe viande riz fromage jambon beurre poisson
post épicé/spicy: soupe viande riz poulet saucisse
post chaud/hot: drinkhot soupe eau
post froid/cold: eau lait soupe bière café thé
post fort/strong: café thé
post fort/strong: lion cheval ours tigre éléphant
post doux/gentle: mouton âne cheval poule lapin
post joyeux/cheerful: chanson mélodie
post triste/sad: chanson film roman conte poème mélodie
post français/French: nationalmade
post italien/Italian: nationalmade
post allemand/German: nationalmade
post japonais/Japanese: nationalmade
post espagnol/Spanish: nationalmade
post anglais/English: nationalmade
post américain/American: nationalmade
post européen/European: nationalmade projet
"""

ADJECTIVE_TAGS = {
    "coloured": "chemise robe chapeau manteau jupe veste pull écharpe cravate ceinture casquette imperméable gant botte"
    " chaussure"
    " chaussette voiture vélo moto camion sac valise parapluie tasse assiette vase canapé fauteuil lampe tapis rideau "
    "coussin",
    "clothable": "chemise robe manteau jupe veste pull costume chaussure botte chaussette",
    "roomy": "cuisine chambre salon garage balcon terrasse",
    "garden": "jardin parc plage forêt lac île colline village",
    "drinkhot": "café thé lait",
    "nationalmade": "voiture film roman magazine journal moto chanson restaurant poème acteur actrice peintre écrivain"
    " ingénieur touriste"
    " musicien chanteur architecte",
}

# French/English[/past]: aspect frame tags. Aspect a action, s state, p punctual.
VERBS = """
manger/eat/ate: a obj food
boire/drink/drank: a obj drink
acheter/buy/bought: a obj bought food
vendre/sell/sold: a obj bought
préparer/prepare: a obj meal
couper/cut/cut: a obj cuttable
lire/read/read: a obj text
écrire/write/wrote: a obj writable
recevoir/receive: p obj sendable
porter/wear/wore: a obj worn
laver/wash: a obj washable
nettoyer/clean: a obj cleaned
réparer/repair: a obj repairable
conduire/drive/drove: a obj driven
ouvrir/open: a obj openable
fermer/close: a obj openable
casser/break/broke: p obj fragile
perdre/lose/lost: p obj losable
trouver/find/found: p obj losable
chercher/look for: a obj losable
oublier/forget/forgot: p obj losable
cacher/hide/hid: a obj hideable
prendre/take/took: a obj transport
apporter/bring/brought: a obj given
emporter/take away/took away: p obj losable
transporter/carry: a obj carried
visiter/visit: a obj sight
voir/see/saw: p obj seen person
regarder/watch: a obj watched
écouter/listen to: a obj heard
admirer/admire: a obj sighted
aider/help: a person -
inviter/invite: a person -
rencontrer/meet/met: p person -
remercier/thank: a person -
attendre/wait for: a obj transport person
connaître/know/knew: s person -
reconnaître/recognize: p person -
saluer/greet: a person -
féliciter/congratulate: a person -
appeler/call: a person -
comprendre/understand/understood: s obj understood
expliquer/explain: a obj explained
peindre/paint: a obj painted
dessiner/draw/drew: a obj drawn
photographier/photograph: a obj photographed
étudier/study: a subject -
enseigner/teach/taught: a subject -
apprendre/learn: a language -
parler/speak/spoke: a language -
choisir/choose/chose: a obj chosen
finir/finish: a obj work
commencer/start: p obj begun
construire/build/built: a obj built
louer/rent: a obj rented
planter/plant: a obj planted
cueillir/pick: a obj picked
arroser/water: a obj watered
nourrir/feed/fed: a obj pet
caresser/pet: a obj chat chien cheval lapin
remplir/fill: a obj filled
vider/empty: a obj container
jeter/throw away/threw away: p obj thrown
allumer/turn on: p obj switch
éteindre/turn off: p obj switch
utiliser/use: a obj usable
essayer/try on: a obj clothes
emprunter/borrow: a obj lent
posséder/own: s obj owned
mettre/put/put: p put portable
laisser/leave/left: p put losable
donner/give/gave: a give given
prêter/lend/lent: a give lent
montrer/show: a give shown
envoyer/send/sent: a give sendable
rendre/return: a give lent
chanter/sing/sang: a obj sung
danser/dance: a intr -
nager/swim/swam: a intr -
courir/run/ran: a intr -
travailler/work: a intr -
dormir/sleep/slept: a intr -
voyager/travel: a intr -
rire/laugh: a intr -
sourire/smile: a intr -
pleurer/cry: a intr -
tousser/cough: a intr -
déjeuner/have lunch/had lunch: a intr -
bavarder/chat: a intr -
rêver/dream: a intr -
partir/leave/left: p goes -
sortir/go out/went out: p goes -
rentrer/come home/came home: p goes -
tomber/fall down/fell down: p goes -
arriver/arrive: p arrive -
naître/be born/be born: p born -
rester/stay: a stay -
habiter/live: s live -
aller/go/went: a move -
revenir/come back/came back: p return -
devenir/become/became: p become -
se lever/get up/got up: p rise -
se coucher/go to bed/went to bed: p rise -
se réveiller/wake up/woke up: p rise -
se laver/wash up: a intr -
se promener/take a walk/took a walk: a intr -
se reposer/rest: a intr -
s'habiller/get dressed/got dressed: a intr -
se dépêcher/hurry: a intr -
s'entraîner/train: a intr -
s'ennuyer/be bored/be bored: s state -
se souvenir de/remember: s topic family
s'occuper de/take care of/took care of: a caring -
parler de/talk about: a topic topic
rêver de/dream of: a topic dreamed
penser à/think about/thought about: a topic topic family
répondre à/answer: a topic lettre question message
téléphoner à/phone: a dative -
ressembler à/look like: s resemble -
jouer à/play: a sport -
jouer de/play: a instrument -
jouer avec/play with: a topic ballon poupée jouet cerf-volant chien chat
aimer/like: s like -
détester/hate: s like -
préférer/prefer: s like -
avoir/have/had: s have owned
avoir faim/be hungry/be hungry: s state -
avoir soif/be thirsty/be thirsty: s state -
avoir froid/be cold/be cold: s state -
avoir chaud/be hot/be hot: s state -
avoir sommeil/be sleepy/be sleepy: s state -
avoir raison/be right/be right: s state -
avoir tort/be wrong/be wrong: s state -
avoir besoin de/need: s topic needed
avoir peur de/be afraid of/be afraid of: s fear feared
vouloir/want to: s inf want
savoir/know how to/knew how to: s inf skill
espérer/hope to: s inf plan
essayer de/try to: a inf plan
décider de/decide to: p inf plan
refuser de/refuse to: p inf plan
promettre de/promise to: p inf plan
commencer à/start to: p inf plan
continuer à/continue to: a inf plan
réussir à/manage to: p inf plan
apprendre à/learn to: a inf skill
penser/think/thought: s that -
croire/believe: s that -
dire/say/said: p that -
coûter/cost/cost: s price -
pleuvoir/rain: a weather -
neiger/snow: a weather -
aboyer/bark: a animal chien
"""

NAMES = {
    "m": "Paul Pierre Marc Luc Thomas David Nicolas Antoine Léo Martin Daniel Simon Louis Éric".split(),
    "f": "Jane Marie Anne Sophie Julie Alice Emma Hélène Sarah Laura Nadia Lucie Élise Irène".split(),
}
# French/gender/English; French en before a feminine or a vowel, au before the others
COUNTRIES = """
France/f/France Italie/f/Italy Espagne/f/Spain Allemagne/f/Germany Angleterre/f/England Belgique/f/Belgium Suisse/f/Switzerland
Grèce/f/Greece Turquie/f/Turkey Russie/f/Russia Chine/f/China Inde/f/India Irlande/f/Ireland Norvège/f/Norway Suède/f/Sweden
Égypte/f/Egypt Tunisie/f/Tunisia Afrique/f/Africa Europe/f/Europe Asie/f/Asia Australie/f/Australia Argentine/f/Argentina
Japon/m/Japan Canada/m/Canada Portugal/m/Portugal Brésil/m/Brazil Mexique/m/Mexico Maroc/m/Morocco Pérou/m/Peru
Danemark/m/Denmark Pologne/f/Poland Écosse/f/Scotland Autriche/f/Austria
"""
CITIES = """
Paris/Paris Lyon/Lyon Rome/Rome Madrid/Madrid Berlin/Berlin Londres/London Genève/Geneva Bruxelles/Brussels Lisbonne/Lisbon
Moscou/Moscow Vienne/Vienna Venise/Venice Athènes/Athens Tokyo/Tokyo Montréal/Montreal Marseille/Marseille Boston/Boston
Dublin/Dublin Varsovie/Warsaw Copenhague/Copenhagen
"""
MONTHS = """
janvier/January février/February mars/March avril/April mai/May juin/June juillet/July août/August septembre/September
octobre/October novembre/November décembre/December
"""
DAYS = """
lundi/Monday mardi/Tuesday mercredi/Wednesday jeudi/Thursday vendredi/Friday samedi/Saturday dimanche/Sunday
"""
NUMBERS = """
2/deux/two 3/trois/three 4/quatre/four 5/cinq/five 6/six/six 7/sept/seven 8/huit/eight 9/neuf/nine 10/dix/ten 11/onze/eleven
12/douze/twelve 13/treize/thirteen 14/quatorze/fourteen 15/quinze/fifteen 16/seize/sixteen 20/vingt/twenty 30/trente/thirty
40/quarante/forty 50/cinquante/fifty 60/soixante/sixty
"""

# Fixed phrases. word:1 is a sure link with every word:1 of the other side, word~1 a possible one.
FREQUENCY = """
souvent:1 | often:1
toujours:1 | always:1
parfois:1 | sometimes:1
rarement:1 | rarely:1
"""
HABITS = """
tous:1 les~1 jours:2 | every:1 day:2
chaque:1 matin:2 | every:1 morning:2
chaque:1 semaine:2 | every:1 week:2
chaque:1 soir:2 | every:1 evening:2
le~1 matin:1 | in~1 the~1 morning:1
le~1 soir:1 | in~1 the~1 evening:1
le~1 week-end:1 | on~1 weekends:1
"""
PAST = """
hier:1 | yesterday:1
hier:1 soir:2 | yesterday:1 evening:2
hier:1 matin:2 | yesterday:1 morning:2
la~1 semaine:1 dernière:2 | last:2 week:1
le~1 mois:1 dernier:2 | last:2 month:1
l'~1 année:1 dernière:2 | last:2 year:1
"""
FUTURE = """
demain:1 | tomorrow:1
demain:1 matin:2 | tomorrow:1 morning:2
demain:1 soir:2 | tomorrow:1 evening:2
la~1 semaine:1 prochaine:2 | next:2 week:1
le~1 mois:1 prochain:2 | next:2 month:1
l'~1 année:1 prochaine:2 | next:2 year:1
bientôt:1 | soon:1
"""
NOW = """
maintenant:1 | now:1
en~1 ce:1 moment:1 | at~1 the:1 moment:1
"""
# adverb: verbs it goes with
MANNERS = """
lentement:1 | slowly:1 = manger boire lire écrire parler conduire travailler
rapidement:1 | quickly:1 = manger s'habiller travailler
bien:1 | well:1 = chanter danser nager dormir travailler
mal:1 | badly:1 = chanter danser nager dormir
beaucoup:1 | a:1 lot:1 = travailler voyager rire tousser pleurer
vite:1 | fast:1 = courir nager
soigneusement:1 | carefully:1 = laver nettoyer réparer préparer couper écrire dessiner peindre
doucement:1 | softly:1 = chanter parler
"""
WEATHER = """
il:1 fait:2 froid:3 | it:1 is:2 cold:3
il:1 fait:2 chaud:3 | it:1 is:2 hot:3
il:1 fait:2 beau:3 | the~1 weather:1 is:2 nice:3
il:1 faisait:2 froid:3 | it:1 was:2 cold:3
il:1 faisait:2 chaud:3 | it:1 was:2 hot:3
il:1 faisait:2 beau:3 | the~1 weather:1 was:2 nice:3
il:1 fera:2 froid:3 | it:1 will~2 be:2 cold:3
il:1 fera:2 chaud:3 | it:1 will~2 be:2 hot:3
il:1 fera:2 beau:3 | the~1 weather:1 will~2 be:2 nice:3
il:1 pleut:2 souvent:3 | it:1 often:3 rains:2
il:1 pleut:2 rarement:3 | it:1 rarely:3 rains:2
il:1 neige:2 souvent:3 | it:1 often:3 snows:2
il:1 neige:2 parfois:3 | it:1 sometimes:3 snows:2
il:1 pleuvait:2 | it:1 was~2 raining:2
il:1 neigeait:2 | it:1 was~2 snowing:2
il:1 pleuvra:2 | it:1 will~2 rain:2
il:1 neigera:2 | it:1 will~2 snow:2
il:1 a~2 plu:2 | it:1 rained:2
il:1 a~2 neigé:2 | it:1 snowed:2
"""
# verb: places, and the English of dans there
PLACES = """
manger boire déjeuner = cuisine jardin restaurant
lire étudier écrire = jardin parc salon chambre train bibliothèque
écouter bavarder = jardin parc salon chambre train
dormir se_reposer = jardin salon chambre
courir se_promener = parc forêt
travailler = bibliothèque jardin cuisine garage restaurant
rencontrer saluer reconnaître voir attendre appeler remercier = rue parc train bus restaurant magasin supermarché
perdre trouver laisser = rue train bus parc taxi restaurant
nager = lac rivière piscine
jouer_avec = jardin parc chambre salon
cueillir planter arroser = jardin champ
chercher cacher = maison cuisine chambre garage jardin salon
nourrir caresser = jardin
préparer couper = cuisine
chanter danser pleurer rire = jardin rue cuisine salon
"""
COMPANY = frozenset(
    "manger boire déjeuner lire étudier travailler voyager danser nager courir se_promener visiter jouer_à jouer_de "
    "bavarder partir "
    "sortir regarder écouter chanter préparer planter cueillir rentrer rire nettoyer".split()
)
# what happens | why; verbs of the first, states of the second
REASONS = """
manger préparer = avoir_faim
boire = avoir_soif
dormir se_coucher se_reposer rester = fatigué malade avoir_sommeil
sourire rire danser = content heureux
pleurer = triste déçu
tousser = malade
"""
SKILLS = "nager danser conduire chanter dessiner jouer_de jouer_à parler".split()
PLANS = (
    "partir sortir dormir manger acheter vendre réparer laver nettoyer préparer lire écrire visiter louer construire "
    "planter voyager "
    "travailler étudier danser chanter aider inviter rencontrer courir aller dessiner peindre utiliser choisir cacher "
    "jeter".split()
)


def _entries(block: str) -> list[list[str]]:
    return [entry.split("/") for entry in block.split()]


def _read_nouns() -> dict[str, Noun]:
    nouns = {}
    for line in NOUNS.replace("\n  ", " ").strip().splitlines():
        section, entries = line.split(": ", 1)
        for entry in entries.split(", "):
            fr, gender, en = entry.lstrip("~").split("/")
            countable = not entry.startswith("~")
            plurals = (french_plural(fr), english_plural(en)) if countable else ("", "")
            nouns[fr] = Noun(fr, gender, en, section, countable, *plurals)
    return nouns


def _read_tags(nouns: dict[str, Noun]) -> dict[str, list[Noun]]:
    tags: dict[str, list[Noun]] = {}
    for noun in nouns.values():
        tags.setdefault(noun.section, []).append(noun)
    for tag, words in (TAGS | ADJECTIVE_TAGS).items():
        tags[tag] = [nouns[word] for word in words.split()]
    return tags


def expand(names: list[str]) -> list[Noun]:
    """The nouns named by tags or by themselves."""
    found: dict[str, Noun] = {}
    for name in names:
        for noun in TAGGED[name] if name in TAGGED else [NOUN[name]]:
            found[noun.fr] = noun
    return list(found.values())


def _read_adjectives() -> tuple[list[Adjective], dict[str, list[Adjective]]]:
    """All adjectives, and by noun those that go with it."""
    adjectives = []
    by_noun: dict[str, list[Adjective]] = {noun: [] for noun in NOUN}
    for line in ADJECTIVES.strip().splitlines():
        head, tags = line.split(": ")
        place, words = head.split(" ", 1)
        fr, en = words.split("/")
        adjective = Adjective(fr, en, place)
        adjectives.append(adjective)
        for noun in expand(tags.split()):
            by_noun[noun.fr].append(adjective)
    return adjectives, by_noun


def _read_verbs() -> list[Verb]:
    verbs = []
    for line in VERBS.strip().splitlines():
        words, rest = line.split(": ")
        fr, en, *past = words.split("/")
        aspect, frame, *tags = rest.split()
        en_past = past[0].split()[0] if past else english_past(en.split()[0])
        objects = tuple(expand([tag for tag in tags if tag not in ("-", "person")])) if frame not in ("inf",) else ()
        aspect = {"a": "action", "s": "state", "p": "punctual"}[aspect]
        verbs.append(Verb(fr, en, en_past, aspect, frame, objects, "person" in tags))
    return verbs


NOUN = _read_nouns()
TAGGED = _read_tags(NOUN)
ADJECTIVE_LIST, ADJECTIVES_OF = _read_adjectives()
VERB_LIST = _read_verbs()
VERB = {verb.fr: verb for verb in VERB_LIST}
